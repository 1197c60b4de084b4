"""Reads an arithmetic expression as people and models write it, and works it out.

    sum      product (("+" | "-") product)*          a percentage on the right is of the left: 200 + 15% is 230
    product  sign (("*" | "/" | "//" | "%") sign)*   also x × · ÷ "times" "divided by" "mod" "of"; a product's sign may
                                                     be left out before a name or a bracket: 2(3 + 4), 2 pi
    sign     ("+" | "-") sign | power
    power    postfix (("^" | "**") sign)?            from the right: 2^3^2 is 2^9
    postfix  primary ("!" | "²" | "³" | "°" | "%")*  "%" is a percentage where nothing follows that it could divide
    primary  number | constant | "(" sum ")" | function "(" sum ("," sum)* ")" | function postfix

Numbers may have an exponent, a 0x in front, or underscores; commas between groups of three digits are taken as
separators where the expression calls no function.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import DecimalException, Inexact

from ecoshell.errors import ToolError
from ecoshell.tools.builtin import arithmetic
from ecoshell.tools.builtin.arithmetic import Number
from ecoshell.tools.builtin.functions import CONSTANTS, FUNCTIONS, PI, factorial

_LONGEST = 2_000
_DEEPEST = 100
"""Of `_sum` and `_sign` inside one another; a bracket takes two."""

_WORDING = (
    (re.compile(r"^\s*(?:what(?:'s| is)|how much is|calculate|compute|evaluate)\b"), ""),
    (re.compile(r"[=?\s]+$"), ""),
    (re.compile(r"\bto the power of\b"), "^"),
    (re.compile(r"\bsquare root of\b"), "√"),
    (re.compile(r"\bmultiplied by\b|\btimes\b"), "*"),
    (re.compile(r"\bdivided by\b|\bover\b"), "/"),
    (re.compile(r"\bplus\b"), "+"),
    (re.compile(r"\bminus\b"), "-"),
    (re.compile(r"\bpercent\b"), "%"),
    (re.compile(r"\bsquared\b"), "²"),
    (re.compile(r"\bcubed\b"), "³"),
    (re.compile(r"\bmodulo\b"), " mod "),
    (re.compile(r"(?<![a-z_])(?<!\b0)x(?![a-z_])|[×·⋅∙]"), "*"),
    (re.compile(r"[÷∕]"), "/"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"\*\*"), "^"),
)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_CALL = re.compile(r"[a-z√]\w*\s*\(")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>0x[0-9a-f]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?P<name>√|[a-zπ][a-z0-9_]*)|(?P<sign>//|\S))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Result:
    """What an expression comes to, and whether the text holds every digit of it."""

    text: str
    exact: bool


@dataclass(frozen=True, slots=True)
class _Percent:
    """A percentage not yet taken of anything."""

    number: Number


def evaluate(text: str) -> Result:
    """Work out an expression; raises ToolError that says what cannot be read or computed."""
    if len(text) > _LONGEST:
        raise ToolError(f"The expression is too long: {len(text)} characters, and at most {_LONGEST} are read.")
    with arithmetic.bounded() as context:
        try:
            value = arithmetic.kept(_Reader(_tokens(_normal(text))).result())
            exact = not context.flags[Inexact]
            return Result(arithmetic.show(value, exact=exact), exact)
        except ZeroDivisionError as error:
            raise ToolError("Division by zero.") from error
        except (OverflowError, DecimalException) as error:
            raise ToolError("The result is too large, or not a real number.") from error
        except ValueError as error:
            raise ToolError(f"It cannot be computed: {error}.") from error


def _normal(text: str) -> str:
    """The expression in the one notation the reader knows."""
    text = text.lower()
    for wording, sign in _WORDING:
        text = wording.sub(sign, text)
    if not _CALL.search(text):
        text = _GROUPED.sub(lambda group: group[0].replace(",", ""), text)
    return text.strip()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """number, name, sign or end."""
    text: str

    @property
    def starts_operand(self) -> bool:
        return self.text == "(" or (self.kind in ("number", "name") and self.text not in ("mod", "of"))


_END = _Token("end", "")


def _tokens(text: str) -> list[_Token]:
    if not text:
        raise ToolError("The expression is empty: give something such as 17 * 23.")
    return [_Token(str(match.lastgroup), match[match.lastgroup or 0]) for match in _TOKEN.finditer(text)]


_PRODUCT_SIGNS: dict[str, Callable[[Number, Number], Number]] = {
    "*": arithmetic.multiply,
    "of": arithmetic.multiply,
    "/": arithmetic.divide,
    "//": arithmetic.floor_divide,
    "%": arithmetic.modulo,
    "mod": arithmetic.modulo,
}


class _Reader:
    """Works the value out while reading, by recursive descent; one method for each rule of the grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def result(self) -> Number:
        value = self._sum()
        if self._next is not _END:
            raise self._unexpected("a sign")
        return value

    def _sum(self) -> Number:
        with self._deeper():
            value = _plain(self._product())
            while sign := self._accept("+", "-"):
                right = self._product()
                if isinstance(right, _Percent):
                    right = arithmetic.divide(arithmetic.multiply(value, right.number), 100)
                value = value + right if sign == "+" else value - right
            return value

    def _product(self) -> Number | _Percent:
        value = self._sign()
        while True:
            if sign := self._accept(*_PRODUCT_SIGNS):
                apply = _PRODUCT_SIGNS[sign]
            elif self._next.kind == "name" or self._next.text == "(":
                apply = arithmetic.multiply
            else:
                return value
            value = apply(_plain(value), _plain(self._sign()))

    def _sign(self) -> Number | _Percent:
        with self._deeper():
            sign = self._accept("+", "-")
            if not sign:
                return self._power()
            value = _plain(self._sign())
            return -value if sign == "-" else value

    def _power(self) -> Number | _Percent:
        base = self._postfix()
        if not self._accept("^"):
            return base
        return arithmetic.power(_plain(base), _plain(self._sign()))

    def _postfix(self) -> Number | _Percent:
        value = self._primary()
        while sign := self._accept("²", "³", "!", "°"):
            if sign == "!":
                value = factorial(value)
            elif sign == "°":
                value = arithmetic.rounded(value * PI / 180)
            else:
                value = arithmetic.power(value, 2 if sign == "²" else 3)
        if self._next.text == "%" and not self._after_next.starts_operand:
            self._accept("%")
            return _Percent(value)
        return value

    def _primary(self) -> Number:
        if self._accept("("):
            value = self._sum()
            self._close()
            return value
        token = self._next
        if token.kind == "number":
            self._at += 1
            return _number(token.text)
        if self._accept(*CONSTANTS):
            return arithmetic.rounded(CONSTANTS[token.text])
        if self._accept(*FUNCTIONS):
            return self._applied(token.text)
        if token.kind == "name":
            raise ToolError(
                f"{token.text} is not known here: only numbers are, the constants pi, e and tau, and the functions "
                f"{', '.join(FUNCTIONS)}. To calculate with what is in a file, read the file first."
            )
        raise self._unexpected("a number")

    def _applied(self, name: str) -> Number:
        function = FUNCTIONS[name]
        values: list[Number] = []
        if self._accept("("):
            values.append(self._sum())
            while self._accept(","):
                values.append(self._sum())
            self._close()
        else:  # sqrt 16
            with self._deeper():
                values.append(_plain(self._postfix()))
        if not function.least <= len(values) <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
            raise ToolError(f"{name} takes {wanted} argument(s), not {len(values)}.")
        return function.apply(*values)

    def _close(self) -> None:
        if not self._accept(")"):
            raise self._unexpected("a closing bracket")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    @property
    def _after_next(self) -> _Token:
        return self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else _END

    def _accept(self, *texts: str) -> str:
        """Take the next token if it is one of these; says which, or nothing."""
        found = self._next.text
        if not found or found not in texts:
            return ""
        self._at += 1
        return found

    @contextmanager
    def _deeper(self) -> Generator[None]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ToolError("The expression is nested too deeply.")
        yield
        self._depth -= 1

    def _unexpected(self, wanted: str) -> ToolError:
        read = " ".join(token.text for token in self._tokens[: self._at][-8:])
        came = f"{self._next.text!r} came" if self._next is not _END else "the expression ended"
        after = f" after {read!r}" if read else ""
        return ToolError(f"The expression cannot be read: {wanted} was expected{after}, but {came}.")


def _number(text: str) -> Number:
    if text.startswith("0x"):
        return int(text, 16)
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else arithmetic.decimal(digits)


def _plain(value: Number | _Percent) -> Number:
    return arithmetic.divide(value.number, 100) if isinstance(value, _Percent) else value
