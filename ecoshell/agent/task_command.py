"""The command `/task`: a turn whose question goes to a subagent, without a step of the session's model."""

from collections.abc import Collection
from dataclasses import dataclass

from ecoshell.agent.command_table import split_first_word
from ecoshell.budget import parse_amount
from ecoshell.errors import UsageError, suggestion
from ecoshell.events import Event, Status
from ecoshell.messages import TOOL_REGISTER, Attachment, Call, visible_line
from ecoshell.strategies import Outcome, Path, Strategy, Thinking, Thought, act
from ecoshell.tools import Delegation
from ecoshell.tools.builtin.task import TASK

COMMAND = f"/{TASK}"


@dataclass(slots=True)
class TaskTurn:
    """What a turn of `/task` delegates, and how its subagent ended."""

    delegation: Delegation
    attachments: tuple[Attachment, ...] = ()
    status: Status = "gave_up"
    """`gave_up` if no subagent started."""
    cause: Event | None = None
    """The limit or error that ended the subagent."""


def delegation_of(line: str, agents: Collection[str]) -> Delegation | None:
    """What a line delegates: `/task INSTRUCTIONS`, `/task AGENT 0.05: INSTRUCTIONS`; None for other lines.

    Words before a colon are instructions, too, unless they name an agent or an amount. An amount at the beginning is
    the share also without a colon, unless it may count something (`/task 3 files …`). Raises UsageError without
    instructions, and for an unknown agent before an amount and a colon.
    """
    command, text = split_first_word(line)
    if command.lower() != COMMAND:
        return None
    delegation = _delegation(text, agents)
    if not delegation.instructions:
        fix = f"Write {COMMAND} [AGENT] [AMOUNT]: TEXT. In the chat, {COMMAND} alone lists the agents."
        raise UsageError("The text of the task is missing.", fix=fix)
    return delegation


def _delegation(text: str, agents: Collection[str]) -> Delegation:
    head, colon, tail = text.partition(":")
    words = head.split() if colon else []
    amounts = [word for word in words if word not in agents and _is_amount(word)]
    name = " ".join(word for word in words if word not in amounts)
    if words and len(amounts) <= 1 and (not name or name in agents):
        return Delegation(tail.strip(), agent=name, budget="".join(amounts))
    if len(words) == 2 and words[1:] == amounts and not words[1].isdecimal():
        fix = suggestion(words[0], sorted(agents))
        raise UsageError(f"Unknown agent {visible_line(words[0])!r}.", fix=fix)
    agent, rest = split_first_word(text)
    if agent not in agents:
        agent, rest = "", text
    budget, instructions = split_first_word(rest)
    if _is_amount(budget) and not budget.isdecimal():
        return Delegation(instructions, agent=agent, budget=budget)
    return Delegation(text if rest else "")


def _is_amount(word: str) -> bool:
    try:
        parse_amount(word)
    except UsageError:
        return False
    return True


def delegating(turn: TaskTurn, *, registered: bool) -> Strategy:
    """A strategy that makes the call of `task`, and ends as its subagent; it registers the tool before if needed."""
    delegation = turn.delegation
    arguments = {
        "instructions": delegation.instructions,
        "agent": delegation.agent,
        "budget": delegation.budget,
    }
    call = Call(TASK, {name: value for name, value in arguments.items() if value}, TASK)

    def strategy(question: str, max_steps: int) -> Thinking:
        path = Path(question)
        if not registered:
            registration = Call(TOOL_REGISTER, {"tool_name": TASK}, f"{TASK}.0")
            path = path.then(*(yield from act(path, Thought("", registration))))
        path = path.then(*(yield from act(path, Thought("", call))))
        result = path.steps[-1].observation
        if turn.status in ("limit", "error"):
            answer = result.text if result.ok else ""
            return Outcome(turn.status, answer, path, cause=turn.cause)
        return Outcome("answered" if result.ok else "gave_up", result.text, path)

    return strategy
