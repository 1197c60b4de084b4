"""Secrets are taken out of a text before it is kept: known shapes of keys, named secrets, and the environment's own."""

import re
from collections.abc import Mapping

MARK = "[redacted]"
SIZE_LIMITS = (200, 2_000, 20_000)
"""Characters up to which an input is of level 0, 1 and 2; what is larger is of level 3."""

_SECRET_NAME = r"(?:[\w-]*(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|passphrase|credentials?)[\w-]*|pwd)"
_NAMED = re.compile(
    rf"""(?P<name>["']?\b{_SECRET_NAME}["']?\s*(?:=|:)\s*)"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)+"|'(?:[^'\\\n]|\\.)+'|[^\s"',;&}{\[\]()]+)""",
    re.IGNORECASE,
)
_ESCAPED = re.compile(rf"""(?P<name>\\"{_SECRET_NAME}\\"\s*:\s*)(?P<value>\\"(?:[^"\\\n]|\\\\)+\\")""", re.IGNORECASE)
"""A named secret in JSON that is itself a text in JSON."""
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bxox[abeprs]-[\w-]{10,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+",
    re.DOTALL,
)
_BEARER = re.compile(r"\b(?P<name>(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+(?=@)", re.IGNORECASE)
_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL")
_SHORTEST = 6
"""Characters a variable's value must have to be looked for: shorter ones occur by chance."""


def redacted(text: str, environ: Mapping[str, str]) -> str:
    """The text with its secrets marked; `environ` is searched for variables whose names say that they hold one."""
    for value in _values(environ):
        text = text.replace(value, MARK)
    text = _SHAPES.sub(MARK, text)
    text = _ESCAPED.sub(lambda found: f'{found["name"]}\\"{MARK}\\"', text)
    text = _NAMED.sub(_without_value, text)
    text = _BEARER.sub(rf"\g<name>{MARK}", text)
    return _USERINFO.sub(rf"\g<name>{MARK}", text)


def size_level(characters: int) -> int:
    """The level of an input's size, 0 to 3 (SPEC §3)."""
    return sum(characters > limit for limit in SIZE_LIMITS)


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{quote}{MARK}{quote}"


def _values(environ: Mapping[str, str]) -> list[str]:
    """Values that are secret by their variable's name, the longest first."""
    values = {value for name, value in environ.items() if _VARIABLE.search(name.upper()) and len(value) >= _SHORTEST}
    return sorted(values, key=len, reverse=True)
