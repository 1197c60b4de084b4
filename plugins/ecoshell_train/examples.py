"""Training examples (GLPFT, SPEC §4): prompts with the replies to learn.

The shell runs each task with a scripted model that knows the right calls. The tools run in a temporary folder, and the
prompts are recorded. So every observation is real, and training prompts equal the prompts in use, token for token.
"""

import asyncio
import json
import os
import re
import subprocess
import tempfile
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshell.agent import Approval, NonInteractive
from ecoshell.api import Agent
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import ApprovalWanted, CallFinished, CallStarted
from ecoshell.messages import (
    META_TOOLS,
    TOOL_REGISTER,
    Call,
    Observation,
    ToolSchema,
    Usage,
)
from ecoshell.models import Delta, PromptSize, Reply, Request
from ecoshell.models.local import LocalModel
from ecoshell.models.quoting import Quoting
from ecoshell.options import Options
from ecoshell.planning.catp.tpl import render
from ecoshell.tools import Limits, ResultSize, Tool
from ecoshell_train.tasks import Task, generate
from ecoshell_train.world import Split

ROLES = ("planner", "caller", "summarizer")


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the reply to learn, as tokens; `earlier` are spans of other learned replies in the prompt."""

    role: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def learned(self) -> tuple[tuple[int, int], ...]:
        """The spans of all learned replies in the prompt and the reply together."""
        return (*self.earlier, (len(self.prompt), len(self.prompt) + len(self.reply)))


def joined(examples: Iterable[Example]) -> list[Example]:
    """Merge examples that continue an earlier one, so that their common prompt is computed once."""
    merged: list[Example] = []
    latest: dict[str, int] = {}
    for example in examples:
        at = latest.get(example.role)
        if at is not None and example.prompt[: merged[at].learned[-1][1]] == (
            *merged[at].prompt,
            *merged[at].reply,
        ):
            merged[at] = replace(example, earlier=merged[at].learned)
        else:
            latest[example.role] = len(merged)
            merged.append(example)
    return merged


# -- playing


class _Gold:
    """A scripted model that serves a task correctly and records prompts in the format of a local model.

    `schemas` are the tools that it could call.
    """

    def __init__(self, local: LocalModel, task: Task) -> None:
        self.traits = replace(local.traits, trained="gold", name="gold")
        self._local, self._task = local, task
        self._made = 0
        self.examples: list[Example] = []
        self.schemas: tuple[ToolSchema, ...] = ()
        self._returned: list[tuple[str, Mapping[str, Any], str]] = []

    def returned(self, name: str, arguments: Mapping[str, Any], observation: str) -> None:
        """Record the result of a call from the shell's events."""
        self._returned.append((name, arguments, observation))

    @property
    def seen(self) -> list[str]:
        """The results of the calls in the order of the steps; parallel calls end in any order."""
        if not self._task.drafted:
            return [observation for *_, observation in self._returned]
        pending, results = [*self._returned], list[str]()
        for call in [task_step.call for task_step in self._task.steps]:
            matches = (
                at for at, entry in enumerate(pending) if entry[:2] == (call.name, call.arguments)
            )
            at = next(matches, None)
            if at is not None:
                results.append(pending.pop(at)[2])
        return results

    def size(self, request: Request) -> PromptSize:
        return self._local.size(request)

    def count(self, text: str) -> int:
        return self._local.count(text)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        for _ in range(_EVENT_DELAY):  # Events arrive late, and a planned call may not run.
            if len(self._returned) >= self._made:
                break
            await asyncio.sleep(0)
        text, call = self._said(request)
        self.schemas = request.callable_now
        self._made += call is not None and call.name != TOOL_REGISTER
        reply_text = text if call else Quoting(request).shortened(text)
        self.examples.append(
            Example(request.role, *self._local.exchange(request, reply_text, call))
        )
        if text:
            yield Delta(text)
        yield Reply(text, () if call is None else (call,), Usage(1, 1))

    async def aclose(self) -> None:
        """Keep the local model, which belongs to the caller."""

    def _said(self, request: Request) -> tuple[str, Call | None]:
        steps, at = self._task.steps, len(self.seen)
        if "plan ::=" in request.grammar:
            return render(
                self._task.plan, "numbered"
            ) if steps else f"Answer: {self._task.answer([])}", None
        if node := _NODE_REQUEST.search(request.task):
            labels = [message.label for message in self._task.plan.nodes]
            return "", steps[labels.index(node[1])].call
        if request.role == "planner":
            why, follows = (
                (steps[at].rationale, "caller") if at < len(steps) else ("", "conclusion")
            )
            return f"{why} Next: {follows}.".strip(), None
        if at == len(steps) or request.role == "summarizer":
            return self._task.answer(self.seen), None
        why, call = steps[at].rationale, steps[at].call
        if all(schema.name != call.name for schema in request.callable_now):
            why, call = f"I register {call.name}.", Call(TOOL_REGISTER, {"tool_name": call.name})
        return "" if request.role == "caller" else why, call


_NODE_REQUEST = re.compile(r"^It is (\S+) in the plan ", re.MULTILINE)
"""The prompt line that requests the call of a node."""
_EVENT_DELAY = 10_000
"""Cycles of the event loop to wait for the result of a call."""
_SINGLE = Options(mode="single")
_UNLIMITED = Limits(result=ResultSize(10_000_000))
"""Recorded results are already truncated."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A tool that returns recorded results.

    `waiting` are the expected calls and their results, shared by all tools of a turn.
    """

    schema: ToolSchema
    waiting: list[tuple[Call, tuple[str, bool]]]
    effects = frozenset[Any]()
    price_nano = 0
    limits = _UNLIMITED

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Return the recorded result, or an error for an unexpected call."""
        call, (observation, ok) = self.waiting[0] if self.waiting else (Call(""), ("", False))
        if call.name != self.schema.name or call.arguments != arguments:
            return Observation("This call was not made.", ok=False)
        del self.waiting[0]
        return Observation(observation, ok=ok)


@dataclass(frozen=True, slots=True)
class _User(NonInteractive):
    """Approves or refuses all calls."""

    refuses: bool

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("no" if self.refuses else "once")


async def play(
    task: Task,
    local: LocalModel,
    options: Options = _SINGLE,
    *,
    tools: Sequence[Tool | str] = ("?*",),
    past: Callable[[Path, Path], str | None] = lambda home, workspace: None,
) -> list[Example]:
    """Return the examples of a task, or none if the shell fails to serve it.

    `past` writes the session that the task continues into a home folder, for a workspace, and returns its ID.
    """
    gold = await _served(task, local, options, tools, past)
    return gold.examples if gold else []


async def replayed(
    task: Task,
    observations: Sequence[tuple[str, bool]],
    schemas: Sequence[ToolSchema | str],
    local: LocalModel,
    options: Options,
    *,
    past: Callable[[Path, Path], str | None] = lambda home, workspace: None,
) -> list[Example]:
    """Like `play`, but calls return recorded results and whether they succeeded.

    A pattern among the schemas selects tools of the shell.
    """
    waiting = [*zip((step.call for step in task.steps), observations, strict=True)]
    tools = [
        task_step if isinstance(task_step, str) else _Recorded(task_step, waiting)
        for task_step in schemas
    ]
    reply = await play(task, local, options, tools=tools, past=past)
    return [] if waiting else reply


async def observed(
    task: Task, local: LocalModel
) -> tuple[tuple[ToolSchema, ...], list[str]] | None:
    """Return the tools and the results of a task, or None if the shell fails to serve it."""
    gold = await _served(task, local, _SINGLE, ("?*",), lambda home, workspace: None)
    return gold and (
        tuple([event for event in gold.schemas if event.name not in META_TOOLS]),
        gold.seen,
    )


async def _served(
    task: Task,
    local: LocalModel,
    options: Options,
    tools: Sequence[Tool | str],
    past: Callable[[Path, Path], str | None],
) -> _Gold | None:
    """Return the scripted model after it has served the task, or None if that fails."""
    gold = _Gold(local, task)
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "project"
        workspace.mkdir()
        for name, text in task.files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text, encoding="utf-8")
        for program in task.setup:
            await asyncio.to_thread(
                subprocess.run, program, cwd=workspace, check=True, capture_output=True
            )
        here = replace(options, workspace=workspace, resume=past(home, workspace))
        if task.drafted:
            here = replace(here, strategy="graph")
        called: dict[str, tuple[str, Mapping[str, Any]]] = {}
        async with Agent(
            gold, tools=tools, home=home, user=_User(task.refused), options=here
        ) as agent:
            with suppress(EcoshellError):
                async for event in agent.stream(task.request, task.attachments):
                    if isinstance(event, CallStarted):
                        called[event.id] = (event.name, event.arguments)
                    if isinstance(event, CallFinished):
                        gold.returned(*called[event.id], event.observation)
            served = len(gold.seen) == len(task.steps) and agent.outcome.answer == task.answer(
                gold.seen
            )
    return gold if served else None


def examples(
    local: LocalModel,
    count: int,
    seed: int,
    split: Split,
    ways: Sequence[Options],
    keep: Path | None = None,
) -> list[Example]:
    """Return the examples of `count` tasks, each played with all options; `keep` is the file of `played`.

    Raises UsageError.
    """
    tasks = generate(count, seed, split)
    plays = (
        (f"{how.mode} {how.registration} {task.digest}", partial(play, task, local, how))
        for task in tasks
        for how in ways
    )
    return [example for _, line in played(plays, keep) for example in line]


def played(
    plays: Iterable[tuple[str, Callable[[], Coroutine[Any, Any, list[Example]]]]],
    keep: Path | None = None,
) -> list[tuple[str, list[Example]]]:
    """Return the key and the examples of each play; a file keeps them, so that each is played once.

    Raises UsageError for a damaged file.
    """
    existing, pending = _read_played(keep) if keep else {}, list[str]()
    if keep:
        keep.parent.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        with keep.open("a", encoding="utf-8") if keep else nullcontext() as file:
            for key, play in plays:
                pending.append(key)
                if key not in existing:
                    existing[key] = await play()
                    lines = [
                        [example.role, example.prompt, example.reply] for example in existing[key]
                    ]
                    if file:
                        print(
                            json.dumps([key, lines], separators=(",", ":")), file=file, flush=True
                        )

    asyncio.run(run())
    return [(key, existing[key]) for key in pending]


def _read_played(file: Path) -> dict[str, list[Example]]:
    """Return the examples in a file of played tasks; removes an incomplete last line."""
    if not file.is_file():
        return {}
    text = file.read_bytes()
    if text and not text.endswith(b"\n"):
        text = text[: text.rfind(b"\n") + 1]
        os.truncate(
            file, len(text)
        )  # Rewriting the file could lose everything if it were interrupted.
    examples: dict[str, list[Example]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            key, text_line = json.loads(line)
            examples[str(key)] = [
                Example(str(role), (*map(int, prompt),), (*map(int, reply),))
                for role, prompt, reply in text_line
            ]
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{file}, line {number} is not a played task: {error}.",
                fix="Remove the line or the file.",
            ) from error
    return examples
