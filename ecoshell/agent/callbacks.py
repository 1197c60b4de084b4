"""What a running tool may request: progress events, forms, addresses to open, and text from the model."""

import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Bill, CallContext, ToolExecutor
from ecoshell.budget.gate import sharing
from ecoshell.budget.working_time import WorkingTime, current_time
from ecoshell.errors import BudgetError, EcoshellError, ModelError, StoreError, ToolError
from ecoshell.events import ApprovalWanted, CallProgressed, Emit, Event, Notice
from ecoshell.messages import PROGRAM, Call, Message, Observation, ToolSchema
from ecoshell.models import Request
from ecoshell.planning.btp.costs import StepCost
from ecoshell.secrecy import mask_secrets
from ecoshell.tools import Delegation, Sample
from ecoshell.tools.running import clip

if TYPE_CHECKING:  # loaded with the first task
    from ecoshell.agent.subagents import Subagents

ROLE = "sampling"
_MAX_OUTPUT_TOKENS = 2_048
_MAX_MESSAGE = 8_000
"""Characters of a server's message to the user."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """The interface of one running tool."""

    deps: Dependencies
    sampling: dict[str, bool]
    """By server: the decision in this session whether the model may write for it."""
    call: Call
    emit: Emit
    bill: Bill
    subagents: "Callable[[], Subagents]"
    ask_advisor: Callable[[str], Awaitable[str]]
    context: CallContext
    executor: ToolExecutor | None = None
    """Executes the calls that the tool makes; None if it may make none."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    clock: WorkingTime | None = field(default_factory=current_time)
    """Measures the tool; stopped while the user answers or the model writes."""

    def progress(self, text: str) -> None:
        self.emit(CallProgressed(self.call.id, self.call.name, text))

    async def advise(self, question: str) -> str:
        try:
            with self._paused():
                return await self.ask_advisor(question)
        except EcoshellError as failure:
            raise ToolError(f"The advisor gave no advice. {failure.message}") from failure

    def report(self, event: Event) -> None:
        self.emit(event)

    async def form(
        self, server: str, message: str, schema: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        fields: Mapping[str, Mapping[str, Any]] = schema["properties"]
        values: dict[str, Any] = dict.fromkeys(schema.get("required", ()))
        values |= {
            name: spec["default"] for name, spec in fields.items() if spec and "default" in spec
        }
        tool_schema = _schema(server, "form", schema)
        question = "\n".join([message, *tool_schema.as_text().splitlines()[1:]])
        why = (
            f"The server {server} asks for these values and receives them as shown; [e] edits them."
        )
        return await self._ask(question, tool_schema, values, why)

    async def visit(self, server: str, message: str, address: str) -> bool:
        schema = _schema(server, "address")
        why = f"The server {server} asks you to open this address. ecoshell does not open it; yes means that you will."
        return await self._ask(message, schema, {"address": address}, why) is not None

    async def use_tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if self.executor is None:
            return Observation("Tools cannot be called from here.", ok=False)
        from ecoshell.models.protocol import call_fault

        call = Call(name, arguments, f"{self.call.id}p{next(self.numbers)}")
        if name in self.deps.catalog:
            call = replace(call, fault=call_fault(call, [self.deps.catalog.schema(name)]))
        context = replace(
            self.context, bill=Bill(), through="", role=PROGRAM, node=True, thought=StepCost()
        )
        with self._paused(), sharing():
            return await self.executor.execute(call, context)

    async def sample(
        self, server: str, messages: Sequence[Message], max_tokens: int, *, allowed: bool
    ) -> Sample:
        model, decisions = self.deps.models.current.model, self.sampling
        name, max_tokens = model.traits.name, max(1, min(max_tokens, _MAX_OUTPUT_TOKENS))
        if server not in decisions and allowed:
            decisions[server] = True
            text = f"{name} writes for {server}, as the settings allow; the costs count under the caps."
            self.emit(Notice(text))
        elif server not in decisions:
            why = f"{name} would write for the server {server} on every request; the costs count under the caps."
            arguments = {"model": name, "max_tokens": max_tokens}
            message, schema = messages[-1].text if messages else "", _schema(server, "sampling")
            decisions[server] = await self._ask(message, schema, arguments, why) is not None
        if not decisions[server]:
            raise ToolError("The user declined it.")
        request = Request(
            mask_secrets(tuple(messages)), want="text", max_tokens=max_tokens, purpose="sample"
        )
        try:
            with (
                self._paused(),
                sharing(),
            ):  # waiting for the tool's own reservation would never end
                reply = await model.ask(request, self.emit, role=ROLE)
        except (BudgetError, ModelError, StoreError) as failure:
            self.emit(Notice(f"{name} wrote nothing for {server}. {failure.message}"))
            raise ToolError("The model could not be asked.") from failure
        return Sample(reply.text, name, reply.cut)

    async def delegate(self, delegation: Delegation) -> Observation:
        reply_calls = self.context.delegating
        return await self.subagents().run(delegation, self.call, self.emit, self.bill, reply_calls)

    def _paused(self) -> AbstractContextManager[None]:
        return nullcontext() if self.clock is None else self.clock.paused()

    async def _ask(
        self, message: str, schema: ToolSchema, arguments: Mapping[str, Any], why: str
    ) -> Mapping[str, Any] | None:
        """The arguments as the user approves them; None if declined."""
        rationale = clip(message, _MAX_MESSAGE)[0]
        question = ApprovalWanted(
            secrets.token_hex(4), schema.name, arguments, ("network",), why, rationale=rationale
        )
        with self._paused():
            approval = await self.deps.approvals.fill_in(mask_secrets(question), schema, self.emit)
        return None if approval.decision == "no" else approval.arguments


def _schema(server: str, subject: str, parameters: Mapping[str, Any] | None = None) -> ToolSchema:
    """The schema of what a server asks for, by default without fields to fill in."""
    parameters = parameters or {"type": "object", "properties": {}}
    return ToolSchema(f"{server}:{subject}", "", parameters, server=server)
