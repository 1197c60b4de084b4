"""Who goes on after the planner: its text is read for `Next: caller.`, `Next: conclusion.` or `Next: give up.`

Small models forget dots, change the case, add words and go on to play the other roles. What follows on from a line that
only another role could have begun is not the planner's; of several decisions the order of SPEC §4 chooses.
"""

import re
from dataclasses import dataclass
from typing import Literal

Next = Literal["caller", "conclusion", "give up"]

ENDINGS = ("Next: caller.", "Next: conclusion.", "Next: give up.")
"""How a planner's text ends, as its prompt says."""
_SIGN = re.compile(
    r"\bnext(?:\s(?:step|role|turn))?[*_`\"')\s]{0,4}[:=→–—-][^\w\n]{0,8}(?:the\s)?"
    r"(?:(?P<give_up>give[\s_-]?up|giving\sup)|(?P<conclusion>conclu(?:de|sion)|summari[sz]er?|finish)"
    r"|(?P<caller>call(?:er)?))\b[^\w\n]{0,4}",
    re.IGNORECASE,
)
_WHOLE_LINE = re.compile(
    r"^\W*(?:(?P<give_up>give[\s_-]?up)|(?P<conclusion>conclusion|summarizer)|(?P<caller>caller))\W*$", re.IGNORECASE
)
_OWN_NAME = re.compile(r"^\s*(?:assistant|planner)\s*:\s*", re.IGNORECASE)
_OTHERS = re.compile(r"^[ \t]*(?:caller|observation|user|conclusion|summarizer)\s*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the planner wants done, and why."""

    rationale: str
    next: Next | None
    """None where the text does not say."""


def decision(text: str) -> Decision:
    """What the planner's text decides: give up before conclusion before caller; never raises."""
    own = _own_part(text)
    signs = list(_SIGN.finditer(own))
    if signs:
        return Decision(own[: signs[0].start()].strip(" \n*_`"), _first_in_order(signs))
    before, _, last = own.rstrip().rpartition("\n")
    alone = _WHOLE_LINE.match(last)
    return Decision(before.strip(), _first_in_order([alone])) if alone else Decision(own.strip(), None)


def _own_part(text: str) -> str:
    """The text up to where the planner began to speak for another role."""
    text = _OWN_NAME.sub("", text, count=1)
    foreign = _OTHERS.search(text)
    return (text[: foreign.start()] if foreign else "").strip() or text


def _first_in_order(signs: "list[re.Match[str]]") -> Next:
    if any(sign["give_up"] for sign in signs):
        return "give up"
    return "conclusion" if any(sign["conclusion"] for sign in signs) else "caller"
