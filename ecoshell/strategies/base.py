"""What strategies yield, what they are sent, and the path they build.

A strategy is a generator: it yields a `Think` or an `Act`, is sent a `Thought` or an `Observation`, and returns an
`Outcome`. One driver (agent/turn) runs them all, so each can be tested without a model.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation


@dataclass(frozen=True, slots=True)
class Thought:
    """What a mode came up with: a rationale and, unless it only spoke, one call."""

    rationale: str
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a trajectory: rationale, call and observation."""

    rationale: str
    call: Call
    observation: Observation


@dataclass(frozen=True, slots=True)
class Path:
    """The trajectory from the question to here; branches of a search share prefixes, never each other's steps."""

    question: str
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> "Path":
        """The path one step further."""
        return replace(self, steps=(*self.steps, step))

    @property
    def registered(self) -> tuple[str, ...]:
        """Names this path itself registered, in order (SPEC §1: a branch sees what its own path registered)."""
        names = (
            str(step.call.arguments.get("tool_name"))
            for step in self.steps
            if step.call.name == TOOL_REGISTER and step.observation.ok
        )
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Think:
    """Asks for the next thought on this path; the reply is a `Thought`."""

    path: Path


@dataclass(frozen=True, slots=True)
class Act:
    """Asks for this call to be made on this path; the reply is an `Observation`."""

    path: Path
    call: Call


Want = Think | Act


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a strategy ended; `exhausted` means the step limit came first."""

    ending: Literal["answered", "gave_up", "exhausted"]
    answer: str
    path: Path


Thinking = Generator[Want, Any, Outcome]
Strategy = Callable[[str, int], Thinking]
"""Takes the question and the step limit."""


def think(path: Path) -> Generator[Want, Any, Thought]:
    """Yield for the next thought, with the reply's type."""
    return (yield Think(path))


def act(path: Path, call: Call) -> Generator[Want, Any, Observation]:
    """Yield for a call, with the reply's type."""
    return (yield Act(path, call))


def ending(thought: Thought, path: Path) -> Outcome | None:
    """The outcome a thought brings about, if it ends the path: `finish`, or text without a call."""
    call = thought.call
    if call is None:
        return Outcome("answered", thought.rationale, path)
    if call.name != FINISH:
        return None
    if call.arguments.get("give_up"):
        reason = call.arguments.get("answer") or thought.rationale
        return Outcome("gave_up", str(reason), path)
    return Outcome("answered", str(call.arguments.get("answer", "")), path)
