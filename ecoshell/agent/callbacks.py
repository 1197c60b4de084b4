"""What the tool of a running call may tell and ask: how far it is, a form, an address to open, words of the model."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ecoshell.agent.dependencies import Dependencies
from ecoshell.errors import BudgetError, ModelError, StoreError, ToolError
from ecoshell.events import ApprovalWanted, CallProgressed, Emit, Notice
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Request
from ecoshell.secrecy import mask_secrets
from ecoshell.tools import Sample
from ecoshell.tools.running import clip

ROLE = "sampling"
_MOST_TOKENS = 2_048
"""Of what a model writes for a tool."""
_MESSAGE = 8_000
"""Characters of what a server says to the person."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """The caller of one call."""

    deps: Dependencies
    sampling: dict[str, bool]
    """By server: whether it may have the model write, once the person has been asked in the session."""
    call: Call
    emit: Emit

    def progress(self, text: str) -> None:
        self.emit(CallProgressed(self.call.id, self.call.name, text))

    async def form(self, server: str, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        fields: Mapping[str, Mapping[str, Any]] = schema["properties"]
        begun: dict[str, Any] = dict.fromkeys(schema.get("required", ()))
        begun |= {name: one["default"] for name, one in fields.items() if one and "default" in one}
        tool_schema = ToolSchema(f"{server}:form", "", schema, server=server)
        asked = "\n".join([message, *tool_schema.as_text().splitlines()[1:]])
        why = f"The server {server} asks this, and is sent what stands here; [e] changes it."
        return await self._ask(asked, tool_schema, begun, why)

    async def visit(self, server: str, message: str, address: str) -> bool:
        schema = ToolSchema(f"{server}:address", "", {"type": "object", "properties": {}}, server=server)
        why = (
            f"The server {server} asks you to open this address yourself. Nothing here opens it; yes says that you do."
        )
        return await self._ask(message, schema, {"address": address}, why) is not None

    async def sample(self, server: str, messages: Sequence[Message], max_tokens: int, *, allowed: bool) -> Sample:
        model, told = self.deps.models.current.model, self.sampling
        name, max_tokens = model.traits.name, max(1, min(max_tokens, _MOST_TOKENS))
        if server not in told:
            if allowed:
                told[server] = True
                self.emit(Notice(f"{server} has {name} write for it, as the settings allow; it is paid from the caps."))
            else:
                schema = ToolSchema(f"{server}:sampling", "", {"type": "object", "properties": {}}, server=server)
                why = f"{name} would write for the server {server}, paid from this session's caps, each time it asks."
                sent = {"model": name, "max_tokens": max_tokens}
                told[server] = await self._ask(messages[-1].text if messages else "", schema, sent, why) is not None
        if not told[server]:
            raise ToolError("The person declined it.")
        request = Request(mask_secrets(tuple(messages)), want="text", max_tokens=max_tokens, purpose="sample")
        try:
            reply = await model.ask(request, self.emit, role=ROLE)
        except (BudgetError, ModelError, StoreError) as failure:
            self.emit(Notice(f"{name} wrote nothing for {server}. {failure.message}"))
            raise ToolError("The model could not be asked.") from failure
        return Sample(reply.text, name, reply.cut)

    async def _ask(
        self, message: str, schema: ToolSchema, arguments: Mapping[str, Any], why: str
    ) -> Mapping[str, Any] | None:
        """What the person agrees to; None where they do not."""
        said = clip(message, _MESSAGE)[0]
        wanted = ApprovalWanted(secrets.token_hex(4), schema.name, arguments, ("network",), why, rationale=said)
        approval = await self.deps.approvals.fill_in(mask_secrets(wanted), schema, self.emit)
        return None if approval.decision == "no" else approval.arguments
