"""Reading the planner's decision from its text (SPEC §4).

Small models forget dots, change case, add words and continue in other roles. A line that only another role could have
begun, and everything after it, is ignored. If several decisions occur, SPEC §4 gives the precedence.
"""

import re
from dataclasses import dataclass
from typing import Literal

Next = Literal["caller", "conclusion", "give up"]

ENDINGS = ("Next: caller.", "Next: conclusion.", "Next: give up.")
"""The endings of a planner's text that its prompt asks for."""
_SIGN = re.compile(
    r"\bnext(?:\s(?:step|role|turn))?[*_`\"')\s]{0,4}[:=→–—-][^\w\n]{0,8}(?:the\s)?"
    r"(?:(?P<give_up>give[\s_-]?up|giving\sup)|(?P<conclusion>conclu(?:de|sion)|summari[sz]er?|finish)"
    r"|(?P<caller>call(?:er)?))\b[^\w\n]{0,4}",
    re.IGNORECASE,
)
_WHOLE_LINE = re.compile(
    r"^\W*(?:(?P<give_up>give[\s_-]?up)|(?P<conclusion>conclusion|summarizer)|(?P<caller>caller))\W*$",
    re.IGNORECASE,
)
_OWN_NAME = re.compile(r"^\s*(?:assistant|planner)\s*:\s*", re.IGNORECASE)
_OTHER_ROLE = re.compile(
    r"^[ \t]*(?:caller|observation|user|conclusion|summarizer)\s*:", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the planner wants done next, and why."""

    rationale: str
    next: Next | None  # None if the text does not say


def decision(text: str) -> Decision:
    """The decision in a small planner's text: give up before conclusion before caller; never raises."""
    text = _OWN_NAME.sub("", text, count=1)
    foreign = _OTHER_ROLE.search(text)
    own = (text[: foreign.start()] if foreign else "").strip() or text
    if signs := list(_SIGN.finditer(own)):
        rationale = own[: signs[0].start()].strip(" \n*_`")
    else:
        rationale, _, last = own.rstrip().rpartition("\n")
        sign = _WHOLE_LINE.match(last)
        if sign is None:
            return Decision(own.strip(), None)
        rationale, signs = rationale.strip(), [sign]
    if any(sign["give_up"] for sign in signs):
        return Decision(rationale, "give up")
    return Decision(
        rationale, "conclusion" if any(sign["conclusion"] for sign in signs) else "caller"
    )


def own_decision(text: str) -> Decision:
    """The decision in a capable planner's text: its last sign. The rest of the text is the rationale."""
    signs = [*_SIGN.finditer(text)]
    if not signs:
        return decision(text)
    last = signs[-1]
    following: Next = (
        "give up" if last["give_up"] else "conclusion" if last["conclusion"] else "caller"
    )
    return Decision(f"{text[: last.start()]}{text[last.end() :]}".strip(" \n*_`"), following)
