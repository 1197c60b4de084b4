"""The command `/task`: a turn whose question goes to a subagent, without a step of the session's model."""

from collections.abc import Container

from ecoshell.budget import parse_amount
from ecoshell.errors import UsageError
from ecoshell.messages import TOOL_REGISTER, Call
from ecoshell.strategies import Outcome, Path, Strategy, Thinking, Thought, act
from ecoshell.tools import Delegation
from ecoshell.tools.builtin.task import TASK

COMMAND = f"/{TASK}"


def delegation_of(line: str, agents: Container[str]) -> Delegation | None:
    """What a line delegates: `/task INSTRUCTIONS`, `/task AGENT 0.05: INSTRUCTIONS`; None for other lines.

    Words before a colon are instructions, too, unless each is an agent or an amount.
    """
    command, _, text = line.strip().partition(" ")
    if command.lower() != COMMAND or not text.strip():
        return None
    head, colon, tail = text.partition(":")
    agent = budget = ""
    for word in head.split() if colon else ():
        if word in agents and not agent:
            agent = word
        elif _is_amount(word) and not budget:
            budget = word
        else:
            return Delegation(text.strip())
    if agent or budget:
        return Delegation(tail.strip(), agent=agent, budget=budget)
    return Delegation(text.strip())


def _is_amount(word: str) -> bool:
    try:
        parse_amount(word)
    except UsageError:
        return False
    return True


def delegating(delegation: Delegation, *, registered: bool) -> Strategy:
    """A strategy that makes the call of `task`, and answers with its result; it registers the tool before if needed."""
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
        return Outcome("answered" if result.ok else "gave_up", result.text, path)

    return strategy
