"""The guard that runs programs of tools in the sandbox, and asks the user before more is allowed."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from ecoshell.agent.approval import ApprovalRequest
from ecoshell.agent.guards import CallContext, Guard
from ecoshell.events import Notice, SandboxBlocked
from ecoshell.messages import Call, Observation
from ecoshell.tools import sandbox_of
from ecoshell.tools.protection import protection
from ecoshell.tools.sandbox import Reach, Sandbox, reach

LACKS = {
    "network": "the sandbox has no network",
    "outside": "the sandbox writes only the workspace and a temporary folder, and hides secrets",
}
"""Why a program failed, by what it lacked."""
_WIDER = {"network": "with network", "outside": "outside the sandbox"}
_SETTINGS = {"network": "[sandbox] network", "outside": "[sandbox] outside"}


@dataclass(frozen=True)
class Confined(Guard):
    """Runs a call inside the sandbox; if it fails for that, runs it again with more, if the user agrees."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool = self.deps.catalog.tool(call.name)
        protection.set(await asyncio.to_thread(self.deps.approvals.rules.protection))
        sandbox = sandbox_of(tool)
        if sandbox is None:
            return await self.inner.execute(call, context)
        approvals = self.deps.approvals
        request = ApprovalRequest(
            call, tool, self.deps.catalog.schema(call.name), context.rationale
        )
        observation = await self._within(await approvals.reach(request), call, context)
        self._report_absence(sandbox, context)
        lacked = observation.obstacle
        if not lacked or (lacked == "outside" and sandbox.mode == "strict"):
            return observation
        allowed = await approvals.widen(
            request, lacked, f"It failed, maybe because {LACKS[lacked]}.", context.emit
        )
        context.emit(SandboxBlocked(call.id, call.name, lacked, allowed))
        if not allowed:
            hint = f"The user did not allow running it {_WIDER[lacked]}; {_SETTINGS[lacked]} names commands that may."
            return replace(
                observation, text=f"{observation.text}\n[{_capital(LACKS[lacked])}. {hint}]"
            )
        again = await self._within(lacked, call, context)
        text = f"[It failed first, because {LACKS[lacked]}. The user allowed running it {_WIDER[lacked]}:]"
        return replace(again, text=f"{text}\n{again.text}")

    async def _within(self, allowed: Reach, call: Call, context: CallContext) -> Observation:
        token = reach.set(allowed)
        try:
            return await self.inner.execute(call, context)
        finally:
            with suppress(ValueError):  # The turn was stopped in another context.
                reach.reset(token)

    def _report_absence(self, sandbox: Sandbox, context: CallContext) -> None:
        """Say once in a session that commands run without a sandbox."""
        approvals = self.deps.approvals
        if sandbox.mode == "auto" and not approvals.has_reported_sandbox and sandbox.problem:
            approvals.has_reported_sandbox = True
            context.emit(Notice(f"Commands run without a sandbox. {sandbox.problem}"))


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
