"""Recorded trajectories: the decision, the call and the observation of each step.

docs/benchmarks.md describes the file format. Some tasks are held out for evaluation; training replays the others with
their recorded tools.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from ecoshell.errors import UsageError
from ecoshell.messages import META_TOOLS, Call, ToolSchema
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell_train.envelopes import unwrapped
from ecoshell_train.examples import Example, played, replayed
from ecoshell_train.records import Filled, Text, read_records
from ecoshell_train.tasks import Step, Task

Decision = Literal["call", "finish", "give_up"]
Split = Literal["held", "rest", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
FIX = "docs/benchmarks.md describes the format; ecoshell bench umi --convert writes such a file."
_UNUSED_TOOLS = (2, 8)
"""Minimum and maximum number of additional tools of a task."""
_SHELL_TOOLS_SHARE = 0.3
"""Share of tasks that also have the shell's tools."""
_EXAMPLE_TOKEN_LIMIT = 2_500


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step; tool, arguments and observation are empty for the last decision."""

    thought: Text = ""
    decision: Decision = "call"
    tool: Text = ""
    arguments: Annotated[dict[str, Any], BeforeValidator(lambda value: value or {})] = field(
        default_factory=dict[str, Any]
    )
    observation: Text = ""

    def __post_init__(self) -> None:
        if self.decision != "call" and (self.tool or self.arguments):
            raise ValueError(f"it ends the trajectory ({self.decision}) and calls a tool")

    def as_record(self) -> dict[str, Any]:
        """Return the step as in a file."""
        values = (
            (self.tool, self.arguments, self.observation)
            if self.decision == "call"
            else (None,) * 3
        )
        fields = dict(zip(("tool", "arguments", "observation"), values, strict=True))
        return {"thought": self.thought, "decision": self.decision, **fields}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One task, from its question to its answer."""

    id: Annotated[
        Filled, BeforeValidator(lambda value: str(value) if type(value) is int else value)
    ]
    tools: tuple[ToolSchema, ...]
    query: Filled
    steps: tuple[ReferenceStep, ...]
    final: Text = ""

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        for name in names:
            if name in META_TOOLS or not name.strip() or names.count(name) > 1:
                raise ValueError(f"{name!r} is not a tool name, is reserved or occurs twice")
        if not self.steps:
            raise ValueError("it has no steps")
        for number, step in enumerate(self.steps, start=1):
            if step.decision != "call" and number < len(self.steps):
                raise ValueError(
                    f"it continues after step {number}, which ends it ({step.decision})"
                )
            if step.decision == "call" and step.tool not in names:
                raise ValueError(f"step {number} calls {step.tool!r}, which is not among its tools")

    @property
    def names(self) -> frozenset[str]:
        """The names of its tools."""
        return frozenset(tool.name for tool in self.tools)

    @property
    def digest(self) -> str:
        """A hash that identifies the trajectory."""
        return sha256(repr(self).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def as_record(self) -> dict[str, Any]:
        """Return the record that `read_trajectories` reads."""
        tools = [
            {key: getattr(tool, key) for key in ("name", "description", "parameters")}
            for tool in self.tools
        ]
        steps = [step.as_record() for step in self.steps]
        return {
            "id": self.id,
            "tools": tools,
            "query": self.query,
            "steps": steps,
            "final": self.final,
        }


def is_held(identity: str) -> bool:
    """Whether the task is held out: the first 64 bits of the ID's SHA-256 are divisible by three.

    A third is held out: with a fifth, LiveMCPBench's 240 recorded steps would leave fewer than 100.
    """
    digest = sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def read_trajectories(path: Path, split: Split = "all") -> list[Trajectory]:
    """Return the trajectories of a split, one per line of the file; raises UsageError."""
    trajectories: dict[str, Trajectory] = {}
    for place, trajectory in read_records(path, Trajectory, FIX):
        if trajectory.id in trajectories:
            raise UsageError(
                f"{place}: an earlier line also has the ID {trajectory.id!r}.",
                fix="Use unique IDs.",
            )
        trajectories[trajectory.id] = trajectory
    if not trajectories:
        raise UsageError(f"{path} contains no trajectory.", fix=FIX)
    selected = [
        trajectory
        for trajectory in trajectories.values()
        if split == "all" or is_held(trajectory.id) == (split == "held")
    ]
    if not selected:
        raise UsageError(
            f"No task of the file is in the split {split!r}.", fix="Remove --split or add tasks."
        )
    return selected


# -- training examples


def trajectory_examples(
    local: LocalModel,
    files: Sequence[Path],
    ways: Sequence[Options],
    keep: Path | None = None,
    *,
    every: int = 1,
) -> list[Example]:
    """Return the examples of tasks that are not held out, each played with all options.

    Skips tasks that the shell would not serve so, and examples that are too long for a local model. `keep` is the file
    of `played`; `every` selects every n-th task. Raises UsageError.
    """
    tasks = {task.id: task for file in files for task in read_trajectories(file, "rest")[::every]}
    plays = [
        (f"{how.mode} {how.registration} {task.digest}", partial(_play, task, local, how))
        for task in tasks.values()
        for how in ways
    ]
    examples = [example for _, examples in played(plays, keep) for example in examples]
    return [each for each in examples if len(each.prompt) + len(each.reply) <= _EXAMPLE_TOKEN_LIMIT]


async def _play(trajectory: Trajectory, local: LocalModel, options: Options) -> list[Example]:
    """Return the examples of a replay with fewer tools; only its calls if it was not finished."""
    chance = random.Random(trajectory.id)
    calls = [step for step in trajectory.steps if step.decision == "call"]
    used = {step.tool for step in calls}
    other_tools = [name for name in sorted(trajectory.names) if name not in used]
    schemas = used | {
        *chance.sample(other_tools, min(len(other_tools), chance.randint(*_UNUSED_TOOLS)))
    }
    task = Task(
        "recorded",
        "",
        trajectory.query,
        {},
        tuple([Step(f"I call {step.tool}.", Call(step.tool, step.arguments)) for step in calls]),
        lambda results: results[-1].strip() if results else trajectory.final,
    )
    tools = [tool for tool in trajectory.tools if tool.name in schemas]
    results = [(step.observation, not unwrapped(step.observation)[1]) for step in calls]
    distractors = ("?*",) if chance.random() < _SHELL_TOOLS_SHARE else ()
    try:
        reply = await replayed(task, results, (*distractors, *tools), local, options)
    except UsageError:  # The shell has a tool of the same name.
        reply = await replayed(task, results, tools, local, options)
    return reply if trajectory.steps[-1].decision == "finish" else reply[:-1]
