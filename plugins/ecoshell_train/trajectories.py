"""Trajectories that were recorded: what was decided at each step, with which tools, and what came back.

They stand in a file of ecoshell's own form (docs/benchmarks.md). Some of their tasks are held back for measuring; what
learns from trajectories takes the rest, played again with the tools of then.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from ecoshell.errors import ToolError, UsageError
from ecoshell.messages import META_TOOLS, Call, ToolSchema
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell.planning.judging import unwrapped
from ecoshell_train.data import Example, Step, Task, played, replayed
from ecoshell_train.records import Filled, Text, read_records

Decision = Literal["call", "finish", "give_up"]
Split = Literal["held", "rest", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
FIX = "docs/benchmarks.md says what each line holds; ecoshell bench umi --convert makes such a file."
_OTHERS = (2, 8)
"""How few and how many tools a task is learned with beside those it uses."""
_BESIDE = 0.3
"""Share of tasks for which the shell's own tools are there as well."""
_LONGEST = 2_500
"""Tokens of the longest example that is learned."""


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step; tool, arguments and observation are empty where it ends the trajectory."""

    thought: Text = ""
    decision: Decision = "call"
    tool: Text = ""
    arguments: Annotated[dict[str, Any], BeforeValidator(lambda given: given or {})] = field(
        default_factory=dict[str, Any]
    )
    observation: Text = ""

    def __post_init__(self) -> None:
        if self.decision != "call" and (self.tool or self.arguments):
            raise ValueError(f"it ends the trajectory ({self.decision}) and calls a tool")

    def as_record(self) -> dict[str, Any]:
        """As it stands in a file."""
        called = (self.tool, self.arguments, self.observation) if self.decision == "call" else (None,) * 3
        fields = dict(zip(("tool", "arguments", "observation"), called, strict=True))
        return {"thought": self.thought, "decision": self.decision, **fields}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One task, from its question to its answer."""

    id: Annotated[Filled, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
    tools: tuple[ToolSchema, ...]
    query: Filled
    steps: tuple[ReferenceStep, ...]
    final: Text = ""

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        for name in names:
            if name in META_TOOLS or not name.strip() or names.count(name) > 1:
                raise ValueError(f"{name!r} is no tool's name, the shell's own, or that of two tools")
        if not self.steps:
            raise ValueError("it has no steps")
        for number, step in enumerate(self.steps, start=1):
            if step.decision != "call" and number < len(self.steps):
                raise ValueError(f"it goes on after step {number}, which is its end ({step.decision})")
            if step.decision == "call" and step.tool not in names:
                raise ValueError(f"step {number} calls {step.tool!r}, which is not among its tools")

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools it has."""
        return frozenset(tool.name for tool in self.tools)

    @property
    def digest(self) -> str:
        """What tells the task from others."""
        return sha256(repr(self).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def as_record(self) -> dict[str, Any]:
        """The line of a file that `read_trajectories` reads."""
        tools = [{key: getattr(tool, key) for key in ("name", "description", "parameters")} for tool in self.tools]
        steps = [step.as_record() for step in self.steps]
        return {"id": self.id, "tools": tools, "query": self.query, "steps": steps, "final": self.final}


def is_held(identity: str) -> bool:
    """Whether the task with this id is held back: the first 64 bits of its SHA-256 divide by three.

    A third is held: of the 240 steps that LiveMCPBench's recordings give, a fifth would leave fewer than a hundred.
    """
    digest = sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def read_trajectories(path: Path, split: Split = "all") -> list[Trajectory]:
    """The trajectories of a file that are in a split: one object a line. Raises UsageError, which names the line."""
    trajectories: dict[str, Trajectory] = {}
    for place, trajectory in read_records(path, Trajectory, FIX):
        if trajectory.id in trajectories:
            raise UsageError(f"{place}: an earlier line has the id {trajectory.id!r} too.", fix="Give each line an id.")
        trajectories[trajectory.id] = trajectory
    if not trajectories:
        raise UsageError(f"{path} has no trajectory.", fix=FIX)
    identifiers = [
        trajectory
        for trajectory in trajectories.values()
        if split == "all" or is_held(trajectory.id) == (split == "held")
    ]
    if not identifiers:
        raise UsageError(f"No task of the file is in the split {split!r}.", fix="Leave out --split, or add tasks.")
    return identifiers


# -- learning from them


def taken(
    local: LocalModel, files: Sequence[Path], ways: Sequence[Options], keep: Path | None = None, *, every: int = 1
) -> list[Example]:
    """The examples of the tasks that are not held back, each played with each of these options; kept as `played` does.

    A task that the shell would not serve so is left out, and so is what is longer than a model of this machine should
    learn from. `every` takes only each so many-th. Raises UsageError.
    """
    tasks = {task.id: task for file in files for task in read_trajectories(file, "rest")[::every]}
    plays = [
        (f"{how.mode} {how.registration} {task.digest}", partial(_play, task, local, how))
        for task in tasks.values()
        for how in ways
    ]
    notes = [task for _, examples in played(plays, keep) for task in examples]
    return [task for task in notes if len(task.prompt) + len(task.reply) <= _LONGEST]


async def _play(trajectory: Trajectory, local: LocalModel, options: Options) -> list[Example]:
    """What a model has to say in the place of the one that was recorded, with fewer tools to choose from.

    Where nothing ends it, or it was given up, its calls alone are learned.
    """
    chance = random.Random(trajectory.id)
    made = [step for step in trajectory.steps if step.decision == "call"]
    used = {step.tool for step in made}
    other_tools = [name for name in sorted(trajectory.names) if name not in used]
    schemas = used | {*chance.sample(other_tools, min(len(other_tools), chance.randint(*_OTHERS)))}
    task = Task(
        "recorded",
        "",
        trajectory.query,
        {},
        tuple([Step(f"I call {step.tool}.", Call(step.tool, step.arguments)) for step in made]),
        lambda results: results[-1].strip() if results else trajectory.final,
    )
    tools = [tool for tool in trajectory.tools if tool.name in schemas]
    results = [(step.observation, not unwrapped(step.observation)[1]) for step in made]
    distractors = ("?*",) if chance.random() < _BESIDE else ()
    try:
        reply = await replayed(task, results, (*distractors, *tools), local, options)
    except ToolError:  # the shell has a tool of the same name
        reply = await replayed(task, results, tools, local, options)
    return reply if trajectory.steps[-1].decision == "finish" else reply[:-1]
