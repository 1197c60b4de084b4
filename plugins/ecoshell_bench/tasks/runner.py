"""Run a task with ecoshell and with the plainest function-calling loop, using the same model."""

import asyncio
import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from ecoshell.agent import Approval, NonInteractive
from ecoshell.agent.session_settings import output_limit, result_characters, step_limit
from ecoshell.agent.spending import SessionBudget
from ecoshell.assembly.model_factory import ConfiguredModelFactory, lending
from ecoshell.assembly.shell import assemble
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import EcoshellError
from ecoshell.events import (
    ApprovalWanted,
    BudgetSettled,
    CallFinished,
    CallStarted,
    ErrorHappened,
    Event,
    LimitHit,
    TurnFinished,
    to_json,
)
from ecoshell.messages import Call, Message, Observation
from ecoshell.models import Model, Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.settings.schema import AgentSettings, Settings
from ecoshell.tools import Tool, limits_of
from ecoshell.tools.running import contained, failed
from ecoshell.tools.workspace import Workspace
from ecoshell_bench.results import known_sum
from ecoshell_bench.tasks.report import Result, Side
from ecoshell_bench.tasks.suite import Task
from ecoshell_bench.tasks.workspace import Sandbox, failures, offline_tools

PLAIN_SYSTEM = "You are a helpful assistant with tools that work in the user's folder."
LIMIT_REACHED = "LimitReached"
"""Marks a result ended by a team's cap; tasks have no caps."""
FATAL_ERRORS = (
    *("ModelMissing", "ModelUnavailable", "ModelUnreachable", "ModelDisabled", "PriceUnknown"),
    *("StoreError", "ServerAway"),
)
"""Kinds of errors that would fail every task, and therefore end the run instead of counting as results."""


def loop_limits(traits: Traits, agent: AgentSettings) -> tuple[int, int]:
    """Return the output tokens of one reply and the steps of one task in the plain loop: the same as in ecoshell."""
    return output_limit(traits, agent.max_output_tokens), step_limit(
        traits, agent.max_steps, capped=False
    )


class Models(ConfiguredModelFactory):
    """The models of a run, created once per side and kept until its end, because loading takes longer than a task."""

    def __init__(self, settings: Settings, options: Options, ledger: Ledger) -> None:
        super().__init__(
            settings,
            options,
            session_budget=SessionBudget(Gate(ledger)),
            paths=user_paths(),
        )
        self._models: dict[tuple[str, Side], Model] = {}

    def get(self, name: str, side: Side) -> Model:
        """Return the model of a side by name; raises ModelMissing, ModelBroken and UsageError."""
        if (name, side) not in self._models:
            self._models[name, side] = self._model(name)
        return self._models[name, side]

    def model_factory(self) -> type[ConfiguredModelFactory]:
        """Return a factory that lends these models to shells without closing them."""
        return lending(lambda name: self.get(name, "ecoshell"))

    def metered(self, name: str, side: Side) -> MeteredModel:
        """Return the model behind the run's gate, so that a team's caps also hold for the plain loop."""
        budget = self._session_budget
        return MeteredModel(
            self.get(name, side), budget.gate, budget.account, retry=RetryPolicy(seconds=0)
        )

    async def aclose(self) -> None:
        """Close the models."""
        for model in self._models.values():
            await model.aclose()
        await super().aclose()


class _Allowing(NonInteractive):
    """A user interface that approves every call and answers no other question."""

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("once")


class TaskRunner:
    """Runs one task at a time in a sandbox; `seconds` is the time limit of each side for a task."""

    def __init__(
        self, sandbox: Sandbox, models: Models, settings: Settings, *, seconds: float
    ) -> None:
        self._sandbox = sandbox
        self._models = models
        self._settings = settings
        self._seconds = seconds

    async def load(self, name: str, side: Side) -> None:
        """Load a local model in advance, so that its first task takes no longer than the rest."""
        model = self._models.get(name, side)
        if model.traits.local and (warm := getattr(model, "warm", None)):
            await warm()
            async for _ in model.stream(
                Request((Message("user", "Hello"),), want="text", max_tokens=1, role=side)
            ):
                pass  # a local model releases its thread at the end of the stream

    async def run(self, task: Task, side: Side, options: Options) -> tuple[Result, str]:
        """Run a task on one side, from an empty folder to its check; failures are part of the result.

        Also returns the transcript as JSON Lines: ecoshell's events, or the loop's messages.
        """
        result = Result(task.id, task.kind, side, task.digest)
        if failure := await self._sandbox.prepare(task):
            result.status, result.error, result.wrong = "setup", failure, [failure]
            return result, ""
        transcript: list[object] = []
        try:
            await (self._run_ecoshell if side == "ecoshell" else self._run_loop)(
                task, options, result, transcript
            )
        except EcoshellError as failure:
            result.status, result.error = "error", f"{type(failure).__name__}: {failure}"
        result.wrong = await failures(task, self._sandbox.workspace, result)
        result.ok = not result.wrong
        return result, "".join(
            json.dumps(entry, ensure_ascii=False, default=_as_json) + "\n" for entry in transcript
        )

    async def _run_ecoshell(
        self, task: Task, options: Options, result: Result, transcript: list[object]
    ) -> None:
        """Run the task as one turn of a chat whose user approves every call."""
        shell = await assemble(
            replace(options, workspace=self._sandbox.workspace, yes=True, force=True),
            _Allowing(),
            paths=self._sandbox.paths,
            settings=self._settings,
            model_factory=self._models.model_factory(),
            tools=offline_tools,
        )
        stopping: list[asyncio.Future[None]] = []
        timer = asyncio.get_running_loop().call_later(
            self._seconds, lambda: stopping.append(asyncio.ensure_future(shell.stop()))
        )
        open_calls: dict[str, Callable[..., None]] = {}
        try:
            with _timed(result):
                async with aclosing(shell.ask(task.request)) as events:
                    async for event in events:
                        _record(event, result, open_calls)
                        transcript.append(to_json(event))
        finally:
            timer.cancel()
            await asyncio.gather(*stopping, return_exceptions=True)
            await shell.aclose()
        if stopping and result.status == "interrupted":
            result.status = "timeout"

    async def _run_loop(
        self, task: Task, options: Options, result: Result, transcript: list[object]
    ) -> None:
        """Send every tool schema and return results unchanged, until the model replies without a call."""
        model, agent = self._models.metered(options.model or "", "baseline"), self._settings.agent
        output_tokens, steps = loop_limits(model.traits, agent)
        workspace = Workspace(self._sandbox.workspace)
        workspace.result.characters = result_characters(model.traits.context)
        tools = offline_tools(self._settings, workspace)
        schemas = tuple(tool.schema for tool in tools)
        messages = [Message("system", PLAIN_SYSTEM), Message("user", task.request)]
        temperature = None if agent.temperature == "auto" else agent.temperature
        result.status = "limit"
        try:
            with _timed(result):
                async with asyncio.timeout(self._seconds):
                    while result.status == "limit" and result.steps < steps:
                        result.steps += 1
                        request = Request(
                            tuple(messages),
                            schemas,
                            schemas,
                            max_tokens=output_tokens,
                            temperature=temperature,
                            role="baseline",
                        )
                        await _step(model, request, tools, messages, result)
        except TimeoutError:
            result.status = "timeout"
        finally:
            transcript += messages
            transcript.append({"speaker": "assistant", "text": result.answer})


@contextmanager
def _timed(result: Result) -> Generator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        result.seconds = time.monotonic() - started


def _as_json(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _record(event: Event, result: Result, open_calls: dict[str, Callable[..., None]]) -> None:
    """Update the result with an event of the turn."""
    match event:
        case CallStarted():
            open_calls[event.id] = result.begin_call(event.name, event.arguments)
        case CallFinished() if event.id in open_calls:
            open_calls.pop(event.id)(ok=event.ok, text=event.observation, refused=event.refused)
        case LimitHit():
            result.error = f"{LIMIT_REACHED}: {event.message}"
        case ErrorHappened() if not result.error.startswith(LIMIT_REACHED):
            result.error = f"{event.kind}: {event.message}"
        case TurnFinished():
            result.status, result.answer, result.steps = event.status, event.answer, event.steps
            result.spent_nano, result.registered = event.spent_nano, list(event.registered)
            result.count(event.usage)
        case _:
            pass


async def _step(
    model: MeteredModel,
    request: Request,
    tools: Sequence[Tool],
    messages: list[Message],
    result: Result,
) -> None:
    """Take a step of the plain loop: run all calls of one reply, or end with the answer.

    Tokens and price come from the ledger, as for ecoshell.
    """

    def count(event: Event) -> None:
        if isinstance(event, BudgetSettled):
            result.count(event.usage)
            result.spent_nano = known_sum((result.spent_nano, event.spent_nano))

    reply = await model.ask(request, count, role="baseline")
    calls = (replace(reply.attempt, fault=reply.fault),) if reply.attempt else reply.calls
    if reply.fault and not calls:
        messages += [
            Message("assistant", reply.text, state=reply.state),
            Message("user", reply.fault),
        ]
        return
    if not calls:
        result.status, result.answer = "answered", reply.text
        return
    results = [await _run(tools, call, result) for call in calls]
    messages.append(Message("assistant", reply.text, calls, state=reply.state))
    messages += [Message("tool", text, (call,)) for call, text in zip(calls, results, strict=True)]


async def _run(tools: Sequence[Tool], call: Call, result: Result) -> str:
    """Run a call and return what the model reads: its result, or why it cannot run."""
    end = result.begin_call(call.name, call.arguments)
    tool = next((tool for tool in tools if tool.schema.name == call.name), None)
    if call.fault or tool is None:
        observation = Observation(call.fault or f"There is no tool called {call.name!r}.", ok=False)
    else:
        try:
            observation = await contained(tool, call.arguments, limits_of(tool))
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - the model reads it, as in the shell
            observation = failed(call.name, failure, limits_of(tool))
    end(ok=observation.ok, text=observation.text)
    return observation.text
