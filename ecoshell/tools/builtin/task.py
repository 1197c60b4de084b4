"""The tool `task`: delegates work to a subagent, which the caller of the tool runs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation, ToolSchema
from ecoshell.tools import Delegation, Limits, ResultSize, caller
from ecoshell.tools.function import FunctionTool

TASK = "task"
PROJECT_FOLDERS = (".ecoshell/agents", ".claude/agents")
"""Folders of the workspace that define agents; of files with one name, the user's counts, then the first."""
_SECONDS = 86_400.0
_GRACE_SECONDS = 10.0


class TaskTool(FunctionTool):
    """Runs a subagent; its limits are those of the subagent's own calls."""

    def __init__(self, result: ResultSize) -> None:
        limits = Limits(_SECONDS, result, grace=_GRACE_SECONDS, delegates=True)
        super().__init__(task, effects=(), limits=limits, name=TASK)
        self.agents: tuple[tuple[str, str], ...] = ()
        """Name and description of the agents that a task can name."""

    @property
    def schema(self) -> ToolSchema:
        """The schema with the agents that a task can name."""
        schema = super().schema
        if not self.agents:
            return schema
        agents = "; ".join(f"{name} ({about})" if about else name for name, about in self.agents)
        return replace(schema, description=f"{schema.description} Agents: {agents}.")


async def task(
    instructions: Annotated[
        str, "What to do, with all it must know; it sees nothing of this conversation."
    ],
    agent: Annotated[str, "Name of a defined agent."] = "",
    tools: Annotated[list[str], "Names of the tools it may use; default: all."] = [],  # noqa: B006 - for the schema
    model: Annotated[str, "Its model; default: a cheap one."] = "",
    budget: Annotated[str, "Most it may spend, such as 0.05 (dollars), 20000tok or 2min."] = "",
) -> Observation:
    """Delegate work to a subagent, which returns a summary and its cost; calls of one reply run in parallel."""
    running = caller.get()
    if running is None:
        raise ToolError("Subagents are not available here.")
    return await running.delegate(Delegation(instructions, agent, tuple(tools), model, budget))


def describe_agents(tools: Iterable[object], agents: Iterable[tuple[str, str]]) -> None:
    """Name the agents in the schema of the tool `task`, if there is one."""
    described = tuple(agents)
    for tool in tools:
        if isinstance(tool, TaskTool):
            tool.agents = described
