"""calculate: arithmetic on an expression."""

from typing import Annotated

from ecoshell.tools.builtin.expression import evaluate


def calculate(
    expression: Annotated[
        str, "Such as 17 * 23, 15% of 80 or sqrt(2)^3. log is base 10, ln natural; angles are radians, or 30°."
    ],
) -> str:
    """Calculate arithmetic: add, subtract, multiply (17 * 23), divide, powers, percent, roots, logarithms."""
    result = evaluate(expression)
    asked = " ".join(expression.strip(" =?\n\t").split())
    return f"{asked} {'=' if result.exact else '≈'} {result.text}"
