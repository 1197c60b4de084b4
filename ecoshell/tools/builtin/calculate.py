"""calculate: arithmetic on an expression."""

from typing import Annotated

from ecoshell.tools.builtin.expression import evaluate


def calculate(
    expression: Annotated[
        str, "Arithmetic with + - * / ^ % and functions. log is base 10, ln natural; angles are radians, or in °."
    ],
) -> str:
    """Calculate arithmetic: add, subtract, multiply, divide, powers, percent, roots, logarithms."""
    result = evaluate(expression)
    asked = " ".join(expression.strip(" =?\n\t").split())
    return f"{asked} {'=' if result.exact else '≈'} {result.text}"
