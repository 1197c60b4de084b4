"""Redaction of secrets in stored texts: known key formats, values named like secrets, and environment variables.

Texts come from tools, so every pattern must run in linear time: all repetitions that can backtrack are bounded.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, cast
from urllib.parse import quote

MARK = "[redacted]"
SIZE_LIMITS = (200, 2_000, 20_000)
"""Maximum characters of input sizes 0, 1 and 2; larger inputs have level 3."""

QUERY = 4_000
"""Stored characters of a question; likewise `ARGUMENTS` and `RESULT`."""
ARGUMENTS = 2_000
RESULT = 500
_AHEAD = 8_000
"""Characters searched beyond the stored ones, to recognise secrets that the cut would split."""
_SHORTEST = 4
"""Minimum characters of a variable's value to redact it."""
_WORD = 8
"""Characters below which a value is redacted only as a whole word."""
_LITERALS = frozenset({"true", "false", "none", "null"})
_MAX_DEPTH = 20
_UNLIMITED = 10_000_000
"""Characters, more than any stored text has."""
_TEXT_LIMITS = (1_000, 200, 50)
"""Maximum characters of each text in arguments, from one attempt to the next."""

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv]))"
"""Start of a word, also after an escape such as `\\n`."""
_SHAPES = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    rf"|{_START}(?:"
    r"(?:sk|rk|pk)[-_](?:live_|test_)?[\w-]{16,}"
    r"|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|npm_\w{20,}|pypi-[\w-]{16,}|dop_v1_\w{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{16,}"
    r"|hf_\w{16,}|r8_\w{16,}|gsk_\w{16,}|xai-\w{16,}|pplx-\w{16,}|nvapi-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{8,}(?:\.[\w-]*){1,4}"
    r")"
)
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|passcode|secret(?!ar)|credential|(?-i:_PASS|\bPASS|\b[Pp]wd)"
    r"|token(?!s(?![a-z])|_?(?:count|limit|usage|type)|i[sz])"
    r"|(?:api|access|account|auth|encryption|master|private|secret|shared|signing)[-_ ]?key|(?-i:_KEY|\bKEY))"
    r"[\w-]{0,24}"
)
"""The end of a name that marks its value as secret."""
_QUOTE = r"\\{0,8}[\"']"
"""A quote, also in JSON nested in a JSON string."""
_SPACE = r"\s{0,40}+"
_OPENING = rf"(?P<quote>(?P<sign>{_QUOTE})(?P=sign){{2}}|{_QUOTE})(?(sign)\s{{0,40}}+)"
"""The opening quote of a value, or three of them as in Python."""
_BLOCK = r"(?:[|>][-+\d]{0,2}\s{1,40}+)?+"
"""The indicator of a YAML block scalar."""
_BARE = r"(?!\[redacted\]|(?:true|false|none|null)\b)[^\s\"'<>&]*[^\s\"'<>&\\,;)}\]]"
_NAMED_VALUE = (
    rf"(?P<name>{_NAMES}(?:{_QUOTE})?(?:{_SPACE}(?:=>?+|:){_SPACE}{_BLOCK}|>)(?:[\[({{]?{_SPACE}{_OPENING})?+)"
    rf"(?(quote)(?:(?!(?<!\\)(?P=quote))[^\n])+|{_BARE})"
)
_OPTION = (
    rf"(?P<name>(?:--(?!-)[\w-]{{0,24}}(?:password|passwd|passphrase|secret|token|api-?key)"
    rf"|{_START}(?:login|user)\s{{1,8}}\S{{1,80}}\s{{1,8}}password)"
    rf"(?:\s{{1,8}}+(?:{_QUOTE})?+|{_QUOTE},{_SPACE}{_QUOTE})(?!-)){_BARE}"
)
_BLANK = (
    rf"(?P<name>(?:(?<=_)(?:passw(?:or)?d|passphrase|secret(?!ar)|token(?!s(?![a-z])|_?(?:count|limit|usage|type)))"
    rf"|(?:api|access|account|auth|encryption|master|private|signing)_key)[\w-]{{0,24}}[ \t]{{1,8}}+(?:{_QUOTE})?+)"
    r"(?=[\w.~+/=-]{0,40}?\d|[\w.~+/=-]{20})[\w.~+/=-]{8,}"
)
"""As in `aws configure set`; the value must look like a key, because such names also occur in sentences."""
_LOGIN = rf"(?P<name>(?<![\w-])(?:-u|--user)[\s=]{{1,8}}+(?:{_QUOTE})?+[^\s:\"']{{1,80}}:){_BARE}"
_BETWEEN = r"[^\n|;&\[]{0,200}?(?<=[\s\"'])"
"""Text between a program and its option, without redacted parts: otherwise the next option would match."""
_GAP = rf"(?:\s{{1,8}}+|{_QUOTE},{_SPACE}{_QUOTE})"
_INLINE = (
    rf"(?P<name>{_START}(?:"
    rf"(?:(?:mysql|mariadb)[\w-]{{0,24}}|7z\w?)(?=[\s\"']){_BETWEEN}(?-i:-p)(?![\d.]{{0,15}}:\d)"
    rf"|(?:sshpass|(?:docker|podman){_GAP}login|mongo(?:sh|dump|restore|export|import)?)(?=[\s\"']){_BETWEEN}(?-i:-p){_GAP}?+"
    rf"|redis-cli(?=[\s\"']){_BETWEEN}-a{_GAP}"
    rf"|(?:un)?zip(?=[\s\"']){_BETWEEN}(?-i:-P){_GAP}?+"
    rf"|curl(?=[\s\"']){_BETWEEN}(?-i:-u)(?:{_QUOTE})?+[^\s:\"'-][^\s:\"']{{0,79}}:"
    rf")(?:{_QUOTE})?+)(?!-){_BARE}"
)
"""Passwords in one-letter options of specific programs: elsewhere `-p` is a port, as `-P` is for mysql."""
_HEADER = (
    rf"(?P<name>(?:authorization|cookie)(?:{_QUOTE})?{_SPACE}[:=]{_SPACE}(?:{_QUOTE})?+"
    rf"(?:(?:apikey|basic|bearer|digest|negotiate|token)\s{{1,8}}+)?+){_BARE}"
)
_BEARER = r"(?P<name>\b(?:bearer|basic)\s{1,8}+)(?=\S{0,40}?\d|\S{20})[\w.~+/=-]{8,}"
_PARAMETER = rf"(?P<name>[?&](?:key|sig|code|x-amz-signature)=){_BARE}"
_USERINFO = r"(?P<name>:(?:\\{0,8}/){2})(?:[^\s/@:\"'<>]{0,200}:[^\s/\"'<>]*|[\w%.~-]{20,200})(?=@)"
_SURROUNDED: Mapping[str, tuple[str, ...]] = {
    _HEADER: ("authorization", "cookie"),
    _NAMED_VALUE: ("pass", "pwd", "secret", "credential", "token", "key"),
    _OPTION: ("--", "password"),
    _BLANK: ("_pass", "_secret", "_token", "_key"),
    _LOGIN: ("-u",),
    _INLINE: ("mysql", "mariadb", "7z", "sshpass", "login", "mongo", "redis-cli", "zip", "curl"),
    _BEARER: ("bearer", "basic"),
    _PARAMETER: ("?", "&"),
    _USERINFO: ("@",),
}
"""Patterns that match by context, each with words of which one must occur."""
_FIELD = rf"(?:{_NAMES}|authorization|cookies?)\Z"
_VARIABLE = r"SECRET|PASSWORD|PASSWD|CREDENTIAL|(?:KEY|TOKEN|PASS)S?(?![A-Z])"


def redacted(text: str, environ: Mapping[str, str]) -> str:
    """Redact the secrets of a text, including values of variables in `environ` that are named like secrets."""
    for value in _values(environ):
        if len(value) >= _WORD:
            text = text.replace(value, MARK)
        elif value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MARK, text)
    text = _compiled(_SHAPES, re.DOTALL).sub(MARK, text)
    lower = text.lower()
    for pattern, words in _SURROUNDED.items():
        if any(word in lower for word in words):
            text = _compiled(pattern).sub(rf"\g<name>{MARK}", text)
    return text


def beginning(text: str, environ: Mapping[str, str], characters: int) -> str:
    """Return the redacted beginning of a text."""
    searched = redacted(text[: characters + _AHEAD], environ)
    if len(text) > characters + _AHEAD:
        searched = searched[: -_AHEAD // 2] or MARK  # the cut may split a secret
    return searched[:characters]


def redacted_json(arguments: Mapping[str, Any], environ: Mapping[str, str], characters: int) -> str:
    """Return arguments as redacted JSON; truncates long texts until it fits, and at last the JSON itself."""
    text, secrets = "", secret_variables(environ)
    for limit in _TEXT_LIMITS:
        text = json.dumps(_clean(arguments, secrets, limit), ensure_ascii=False)
        if len(text) <= characters:
            break
    return text[:characters]


def redacted_value(value: Any, environ: Mapping[str, str]) -> Any:
    """Copy a JSON value with redacted secrets; replaces values nested too deeply."""
    return _clean(value, secret_variables(environ), _UNLIMITED)


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables named like secrets; passing only these speeds up redaction of many texts."""
    return {name: value for name, value in environ.items() if _compiled(_VARIABLE).search(name)}


def digest(text: str, environ: Mapping[str, str]) -> str:
    """Return the SHA-256 of a text with redacted beginning: a short secret could be found by brute force."""
    marked = redacted(text[:_AHEAD], environ) + text[_AHEAD:]
    return hashlib.sha256(marked.encode(errors="backslashreplace")).hexdigest()


def size_level(characters: int) -> int:
    """Return the size level of an input, 0 to 3 (SPEC §3)."""
    return sum(characters > limit for limit in SIZE_LIMITS)


@cache
def _compiled(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile on first use, not at start-up."""
    return re.compile(pattern, flags)


def _values(environ: Mapping[str, str]) -> list[str]:
    """Return the secret values of variables, also in JSON and URL encoding, longest first."""
    secrets = {value.strip() for value in secret_variables(environ).values()}
    long_secrets = {
        value for value in secrets if len(value) >= _SHORTEST and value.lower() not in _LITERALS
    }
    written = set(long_secrets)
    for value in long_secrets:
        written |= {
            json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)
        }
        written.add(quote(value, safe="", errors="surrogatepass"))
    return sorted((form for form in written if form not in MARK), key=len, reverse=True)


def _clean(value: Any, environ: Mapping[str, str], limit: int, depth: int = 0) -> Any:
    """Copy a JSON value without secrets; truncates long texts and replaces deep values."""
    if isinstance(value, str):
        text = beginning(value, environ, limit + 1)
        return text if len(text) <= limit else f"{text[:limit]}…"
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        cleaned: dict[str, Any] = {}
        for name, inner in cast("Mapping[Any, Any]", value).items():
            secret = _compiled(_FIELD).search(str(name)[:_AHEAD]) and not isinstance(
                inner, (bool, type(None))
            )
            text = beginning(str(name), environ, limit)
            cleaned[text] = MARK if secret else _clean(inner, environ, limit, depth + 1)
        return cleaned
    if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        return [*_clean_items(cast("Sequence[Any]", value), environ, limit, depth + 1)]
    return value if value is None or isinstance(value, (bool, int, float)) else "…"


def _clean_items(
    items: Sequence[Any], environ: Mapping[str, str], limit: int, depth: int
) -> Iterator[Any]:
    """Clean a list that may be a command line with `--password VALUE` or `-u NAME:PASSWORD`."""
    words = (word for word in items[:2] if isinstance(word, str))
    program = " ".join(takewhile(lambda word: not word.startswith("-"), words))[:_AHEAD]
    previous: Any = ""
    for item in items:
        shown_item = item
        if isinstance(item, str) and isinstance(previous, str):
            if previous in ("-u", "--user") and ":" in item:
                shown_item = MARK
            else:  # a word of a command line
                start = f"{program} {previous[:_AHEAD]} "
                line = f"{start}{item[:_AHEAD]}"
                marked = _compiled(_INLINE).sub(rf"\g<name>{MARK}", line)
                shown_item = (
                    marked[len(start) :] if marked.startswith(start) and marked != line else item
                )
        is_secret = (
            isinstance(previous, str)
            and previous[:2] == "--"
            and _compiled(_FIELD).search(previous[:_AHEAD])
        )
        yield MARK if is_secret else _clean(shown_item, environ, limit, depth)
        previous = item
