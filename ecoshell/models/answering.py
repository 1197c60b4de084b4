"""The answer in a call of `finish`, given out while its JSON arguments are still being written."""

_NAME = "answer"
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class AnswerText:
    """Reads the arguments piece by piece, as an object of JSON; what is no JSON ends it."""

    def __init__(self) -> None:
        self._depth = 0
        self._key = self._string = ""
        """The key of the outermost object whose value comes, and the last string read there."""
        self._inside = False
        """Whether a string is open."""
        self._escape = ""
        self._high = 0
        """The first half of a surrogate pair, until the second one comes."""
        self._over = False

    def feed(self, piece: str) -> str:
        """Take in a piece of the arguments; returns what it adds to the answer."""
        said: list[str] = []
        for sign in piece:
            if self._over:
                break
            if self._inside:
                said.append(self._read(sign))
            else:
                self._pass(sign)
        return "".join(said)

    def _pass(self, sign: str) -> None:
        """Go on between strings."""
        match sign:
            case '"':
                self._inside, self._string = True, ""
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self._over = self._depth <= 0
            case ":" if self._depth == 1:
                self._key = self._string
            case "," if self._depth == 1:
                self._key = ""
            case _:
                pass

    def _read(self, sign: str) -> str:
        """Go on in a string; returns what of it belongs to the answer."""
        answers = self._depth == 1 and self._key == _NAME
        if not self._escape and sign == '"':
            self._inside, self._over = False, answers or bool(self._high)
            return ""
        character = self._decoded(sign)
        if answers:
            return character
        if self._depth == 1 and not self._key:
            self._string += character
        return ""

    def _decoded(self, sign: str) -> str:
        """The character that a sign completes; empty while it is not complete, or when it cannot be."""
        if not self._escape and sign != "\\":
            return self._whole(ord(sign))
        self._escape += sign
        escape = self._escape[1:]
        if not escape or (escape[0] == "u" and len(escape) < 5):
            return ""
        self._escape = ""
        if escape[0] == "u":
            digits = escape[1:]
            if all(digit in "0123456789abcdefABCDEF" for digit in digits):
                return self._whole(int(digits, 16))
        elif escape in _ESCAPES:
            return self._whole(ord(_ESCAPES[escape]))
        self._over = True
        return ""

    def _whole(self, code: int) -> str:
        """The character of a code; of one half of a surrogate pair, nothing until the other half is there."""
        high, self._high = self._high, 0
        if high and 0xDC00 <= code < 0xE000:
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        if high or 0xDC00 <= code < 0xE000:  # half of a pair is no text
            self._over = True
            return ""
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return ""
        return chr(code)
