"""Comparing two proposed steps of a search."""

import re

from ecoshell.agent.view import View
from ecoshell.messages import FINISH, Message
from ecoshell.models import Request
from ecoshell.modes.requests import prompt
from ecoshell.strategies import Thought

RANKER = "ranker"  # the role under which comparisons are accounted
_MAX_TOKENS = 128
_QUESTION_CHARACTERS = 2_000
_THOUGHT_CHARACTERS = 600
_RESULT_CHARACTERS = 160
_LETTER = re.compile(r"\b[AB]\b")
_LEADING_LETTER = re.compile(r"\W*([AB])(?!\w| \w)")
"""A letter at the beginning that is not the article."""


def ranking_request(view: View, first: Thought, second: Thought) -> Request:
    """The request to choose between two thoughts, shown as A and B."""
    steps: list[str] = []
    for step in view.path.steps:
        outcome = "" if step.observation.ok else "failed: "
        result = _shortened(step.observation.text, _RESULT_CHARACTERS)
        steps.append(
            f"- {_shortened(step.call.signature(), _THOUGHT_CHARACTERS)}: {outcome}{result}"
        )
    question = _shortened(view.path.question, _QUESTION_CHARACTERS)
    lines = [f"Task: {question}", "Done so far:", *(steps or ["- nothing"])]
    for letter, thought in (("A", first), ("B", second)):
        call = thought.call
        if call is None:
            proposal = f"answer: {_shortened(thought.rationale, _THOUGHT_CHARACTERS)}"
        else:
            action = (
                f"answer: {call.arguments.get('answer', '')}"
                if call.name == FINISH
                else call.signature()
            )
            proposal = _shortened(
                f"{thought.rationale} → {action}" if thought.rationale else action,
                _THOUGHT_CHARACTERS,
            )
        lines.append(f"{letter}: {proposal}")
    messages = (Message("system", prompt("rank")), Message("user", "\n".join(lines)))
    return Request(messages, want="text", max_tokens=_MAX_TOKENS, purpose="rank")


def verdict(text: str) -> str:
    """`A` or `B`: the letter a reply begins with, or the only one it contains; empty if undecided."""
    leading, letters = _LEADING_LETTER.match(text), set(_LETTER.findall(text))
    if leading:
        return leading[1]
    return letters.pop() if len(letters) == 1 else ""


def _shortened(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]} […]"
