"""Bell and desktop notifications while the terminal does not have the focus."""

from collections.abc import Mapping
from typing import Literal, get_args

from ecoshell.messages import visible_line

Mode = Literal["off", "bell", "desktop"]
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT: Mode = "bell"
_BELL = "\a"
_MAX_LENGTH = 120
_TITLE = "ecoshell"
_OSC_777_TERMS = ("rxvt", "foot")
"""Beginnings of `TERM` for terminals that know OSC 777 but not OSC 9, as those based on VTE do."""


def alert_sequence(mode: Mode, text: str, environ: Mapping[str, str]) -> str:
    """The characters that alert the user: nothing, a bell, or a bell and a desktop notification.

    `text` is untrusted. Terminals that know neither OSC 9 nor OSC 777 ignore it.
    """
    if mode == "off":
        return ""
    if mode == "bell":
        return _BELL
    body = visible_line(text, _MAX_LENGTH).replace(";", ",")
    is_777 = "VTE_VERSION" in environ or environ.get("TERM", "").startswith(_OSC_777_TERMS)
    command = f"777;notify;{_TITLE};{body}" if is_777 else f"9;{_TITLE}: {body}"
    return f"{_BELL}\x1b]{command}\x1b\\"
