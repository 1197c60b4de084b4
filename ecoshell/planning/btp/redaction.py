"""Secrets are taken out of what is kept: known shapes of keys, what is named like a secret, and the environment's own.

Texts come from tools, so no pattern here may take longer than in proportion to the text: every repetition that can be
given back is bounded.
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
"""Characters up to which an input is of level 0, 1 and 2; what is larger is of level 3."""

QUERY, ARGUMENTS, RESULT = 4_000, 2_000, 500
"""Characters that are kept of each."""
_AHEAD = 8_000
"""Characters that are searched beyond those that are kept, so that a secret is known although it is cut."""
_SHORTEST, _WORD = 4, 8
"""Characters a variable's value must have to be looked for; below the second it is only looked for as a whole word."""
_PLAIN = frozenset({"true", "false", "none", "null"})
_DEEPEST = 20
_WHOLE = 10_000_000
"""Characters, more than any text has that a session keeps."""
_SHORTER = (1_000, 200, 50)
"""Characters that are left of each text in arguments, from one attempt to the next."""

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv]))"
"""Where a word begins: also after an escape such as `\\n`, whose letter belongs to no word."""
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
"""The end of a name that says its value is secret."""
_QUOTE = r"\\{0,8}[\"']"
"""Also as it stands in JSON that is itself a text in JSON."""
_SPACE = r"\s{0,40}+"
_OPENING = rf"(?P<quote>(?P<sign>{_QUOTE})(?P=sign){{2}}|{_QUOTE})(?(sign)\s{{0,40}}+)"
"""The quote before a value, or three of them, as in Python."""
_BLOCK = r"(?:[|>][-+\d]{0,2}\s{1,40}+)?+"
"""What YAML puts before a value of several lines."""
_BARE = r"(?!\[redacted\]|(?:true|false|none|null)\b)[^\s\"'<>&]*[^\s\"'<>&\\,;)}\]]"
_NAMED = (
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
"""As in `aws configure set`; the value must look like a key, as such names also stand in sentences."""
_LOGIN = rf"(?P<name>(?<![\w-])(?:-u|--user)[\s=]{{1,8}}+(?:{_QUOTE})?+[^\s:\"']{{1,80}}:){_BARE}"
_BETWEEN = r"[^\n|;&\[]{0,200}?(?<=[\s\"'])"
"""What stands between a program and its option; nothing that is marked already, or the next option would be taken."""
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
"""Passwords behind one letter, of the programs whose letter it is: elsewhere `-p` is a port, as `-P` is for mysql."""
_HEADER = (
    rf"(?P<name>(?:authorization|cookie)(?:{_QUOTE})?{_SPACE}[:=]{_SPACE}(?:{_QUOTE})?+"
    rf"(?:(?:apikey|basic|bearer|digest|negotiate|token)\s{{1,8}}+)?+){_BARE}"
)
_BEARER = r"(?P<name>\b(?:bearer|basic)\s{1,8}+)(?=\S{0,40}?\d|\S{20})[\w.~+/=-]{8,}"
_PARAMETER = rf"(?P<name>[?&](?:key|sig|code|x-amz-signature)=){_BARE}"
_USERINFO = r"(?P<name>:(?:\\{0,8}/){2})(?:[^\s/@:\"'<>]{0,200}:[^\s/\"'<>]*|[\w%.~-]{20,200})(?=@)"
_SURROUNDED: Mapping[str, tuple[str, ...]] = {
    _HEADER: ("authorization", "cookie"),
    _NAMED: ("pass", "pwd", "secret", "credential", "token", "key"),
    _OPTION: ("--", "password"),
    _BLANK: ("_pass", "_secret", "_token", "_key"),
    _LOGIN: ("-u",),
    _INLINE: ("mysql", "mariadb", "7z", "sshpass", "login", "mongo", "redis-cli", "zip", "curl"),
    _BEARER: ("bearer", "basic"),
    _PARAMETER: ("?", "&"),
    _USERINFO: ("@",),
}
"""What is known by what stands before or after it, and the words without which it cannot be there."""
_FIELD = rf"(?:{_NAMES}|authorization|cookies?)\Z"
_VARIABLE = r"SECRET|PASSWORD|PASSWD|CREDENTIAL|(?:KEY|TOKEN|PASS)S?(?![A-Z])"


def redacted(text: str, environ: Mapping[str, str]) -> str:
    """The text with its secrets marked; `environ` is searched for variables whose names say that they hold one."""
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
    """The redacted beginning of a text of any length."""
    searched = redacted(text[: characters + _AHEAD], environ)
    if len(text) > characters + _AHEAD:
        searched = searched[: -_AHEAD // 2] or MARK  # what stands at the cut may be the half of a secret
    return searched[:characters]


def redacted_json(arguments: Mapping[str, Any], environ: Mapping[str, str], characters: int) -> str:
    """Arguments as redacted JSON whose long texts are cut until it fits; when nothing helps, it is cut itself."""
    text, secrets = "", secret_variables(environ)
    for most in _SHORTER:
        text = json.dumps(_clean(arguments, secrets, most), ensure_ascii=False)
        if len(text) <= characters:
            break
    return text[:characters]


def redacted_value(value: Any, environ: Mapping[str, str]) -> Any:
    """A copy of a JSON value whose secrets are marked, otherwise whole; what is deep is left out."""
    return _clean(value, secret_variables(environ), _WHOLE)


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold secrets, by their names; with these alone, many texts are redacted faster."""
    return {name: value for name, value in environ.items() if _compiled(_VARIABLE).search(name)}


def digest(text: str, environ: Mapping[str, str]) -> str:
    """The SHA-256 of a text, with the secrets of its beginning marked: a short one could be found by trying."""
    whole = redacted(text[:_AHEAD], environ) + text[_AHEAD:]
    return hashlib.sha256(whole.encode(errors="backslashreplace")).hexdigest()


def size_level(characters: int) -> int:
    """The level of an input's size, 0 to 3 (SPEC §3)."""
    return sum(characters > limit for limit in SIZE_LIMITS)


@cache
def _compiled(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compiled when first needed, not at start-up."""
    return re.compile(pattern, flags)


def _values(environ: Mapping[str, str]) -> list[str]:
    """Values that are secret by their variable's name, also as JSON and addresses write them, the longest first."""
    named = {value.strip() for value in secret_variables(environ).values()}
    looked_for = {value for value in named if len(value) >= _SHORTEST and value.lower() not in _PLAIN}
    written = set(looked_for)
    for value in looked_for:
        written |= {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
        written.add(quote(value, safe="", errors="surrogatepass"))
    return sorted((form for form in written if form not in MARK), key=len, reverse=True)


def _clean(value: Any, environ: Mapping[str, str], most: int, depth: int = 0) -> Any:
    """A copy of a JSON value without secrets, and without what is long or deep."""
    if isinstance(value, str):
        kept = beginning(value, environ, most + 1)
        return kept if len(kept) <= most else f"{kept[:most]}…"
    if isinstance(value, Mapping) and depth < _DEEPEST:
        cleaned: dict[str, Any] = {}
        for name, inner in cast("Mapping[Any, Any]", value).items():
            secret = _compiled(_FIELD).search(str(name)[:_AHEAD]) and not isinstance(inner, (bool, type(None)))
            kept = beginning(str(name), environ, most)
            cleaned[kept] = MARK if secret else _clean(inner, environ, most, depth + 1)
        return cleaned
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        return [*_clean_items(cast("Sequence[Any]", value), environ, most, depth + 1)]
    return value if value is None or isinstance(value, (bool, int, float)) else "…"


def _clean_items(items: Sequence[Any], environ: Mapping[str, str], most: int, depth: int) -> Iterator[Any]:
    """A list, which may be a command line: what follows `--password` is one, and so are `-u` and `name:password`."""
    words = (word for word in items[:2] if isinstance(word, str))
    program = " ".join(takewhile(lambda word: not word.startswith("-"), words))[:_AHEAD]
    before: Any = ""
    for item in items:
        told = item
        if isinstance(item, str) and isinstance(before, str):
            if before in ("-u", "--user") and ":" in item:
                told = MARK
            else:  # a word of a command line whose password is marked
                start = f"{program} {before[:_AHEAD]} "
                line = f"{start}{item[:_AHEAD]}"
                marked = _compiled(_INLINE).sub(rf"\g<name>{MARK}", line)
                told = marked[len(start) :] if marked.startswith(start) and marked != line else item
        known = isinstance(before, str) and before[:2] == "--" and _compiled(_FIELD).search(before[:_AHEAD])
        yield MARK if known else _clean(told, environ, most, depth)
        before = item
