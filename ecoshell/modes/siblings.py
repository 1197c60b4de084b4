"""What a model is told of the siblings of a thought: those that were tried, and two that are to be compared.

A comparison is asked for in a prompt of its own, without tool documents and with results cut short: it may take place
at every node, twice, and the whole context each time would cost more than the step it chooses.
"""

import re

from ecoshell.agent.mode import View
from ecoshell.messages import FINISH, Message
from ecoshell.models.base import Request
from ecoshell.modes.prompts import prompt
from ecoshell.strategies.base import Step, Thought, Tried

RANKER = "ranker"
"""The role in which thoughts are compared."""
_MAX_TOKENS = 128
_QUESTION = 2_000
_SAID = 600
_RESULT = 160
"""Characters of a question, of a thought, and of a result that are shown when two thoughts are compared."""
_LETTER = re.compile(r"\b[AB]\b")
_FIRST = re.compile(r"\W*([AB])(?!\w| \w)")
"""A reply that begins with the letter, and not with the article."""


def tried_message(view: View, told: str = "tried") -> Message:
    """What was tried from here, after the prompt `told`, and what registered tools the plan does not allow any more."""
    lines = [prompt(told), *map(_tried_line, view.tried)]
    barred = [document.name for document in view.registered if document.name in view.forbidden]
    if barred:
        lines.append(f"Not to be used any more: {', '.join(barred)}.")
    return Message("user", "\n".join(lines))


def ranking_request(view: View, one: Thought, other: Thought) -> Request:
    """What to ask a model for its choice between two thoughts, shown as A and B."""
    done = [_done_line(step) for step in view.path.steps] or ["- nothing"]
    asked = (
        f"Task: {_cut(view.path.question, _QUESTION)}",
        "Done so far:",
        *done,
        f"A: {_proposal(one)}",
        f"B: {_proposal(other)}",
    )
    messages = (Message("system", prompt("rank")), Message("user", "\n".join(asked)))
    return Request(messages, want="text", max_tokens=_MAX_TOKENS, purpose="rank")


def verdict(said: str) -> str:
    """`A` or `B`: what the reply begins with, or else the only one it names; empty when it does not say."""
    first, named = _FIRST.match(said), set(_LETTER.findall(said))
    if first:
        return first[1]
    return named.pop() if len(named) == 1 else ""


def _tried_line(tried: Tried) -> str:
    return f"- {tried.call.signature()}: {tried.outcome or 'proposed, and not made yet'}"


def _done_line(step: Step) -> str:
    outcome = "" if step.observation.ok else "failed: "
    return f"- {_cut(step.call.signature(), _SAID)}: {outcome}{_cut(step.observation.text, _RESULT)}"


def _proposal(thought: Thought) -> str:
    call = thought.call
    if call is None:
        return f"answer: {_cut(thought.rationale, _SAID)}"
    does = f"answer: {call.arguments.get('answer', '')}" if call.name == FINISH else call.signature()
    return _cut(f"{thought.rationale} → {does}" if thought.rationale else does, _SAID)


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} […]"
