"""Approval of calls by rules, by earlier approvals and by the user, and the sandbox of their programs."""

import asyncio
import functools
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ecoshell.agent import Approval, Decision, NonInteractive, UserInterface
from ecoshell.agent.guards import CallContext, Guard, refuse
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.rules import HARMLESS, Judgement, Rules
from ecoshell.agent.untrusted import Guess, is_trusted
from ecoshell.catalog import Catalog
from ecoshell.events import ApprovalGiven, ApprovalWanted, Emit, Notice, SandboxBlocked
from ecoshell.messages import Call, Effect, Observation, ToolSchema, visible_line
from ecoshell.models import Traits
from ecoshell.options import ApprovalMode
from ecoshell.secrecy import mask_secrets
from ecoshell.tools import LASTING, Previewing, Tool, sandbox_of
from ecoshell.tools.git_state import why_not_plain
from ecoshell.tools.protection import protection
from ecoshell.tools.running import clip, in_thread
from ecoshell.tools.sandbox import Reach, Sandbox, reach

_DO_INSTEAD = "Answer the request in your own words, or use a tool that only reads."
"""What a weak model reads instead of a reason, which it would repeat as its answer."""
_HOW_TO_TRUST = " `trusted = true` for the model in the settings leaves that to the rules."
_PLAN_MODE = (
    "plan mode runs only tools that read. Call no other tool; end with a numbered plan of what you would do, which the "
    "user accepts or changes."
)
_EDIT_CHARACTERS = 2_000
"""Characters of edited arguments that the model reads."""
_EFFECT_WORDS: Mapping[Effect, str] = {
    "read": "read files",
    "write": "change files",
    "execute": "run a program",
    "network": "reach the network",
}


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs a decision."""

    call: Call
    tool: Tool
    schema: ToolSchema
    rationale: str = ""
    searching: bool = False
    """Whether the agent may backtrack and try another path."""
    guess: Guess | None = None
    """The comparison for a call of an untrusted model."""
    agent: str = ""
    """The subagent that makes the call."""

    @property
    def outlasts(self) -> bool:
        """Whether the call's effects remain after backtracking."""
        return self.searching and bool(self.tool.effects & LASTING)

    def wanted(self, judged: Judgement, fault: str = "") -> ApprovalWanted:
        """The question for the user; may block."""
        changes, effects = "", self.tool.effects
        if isinstance(self.tool, Previewing):
            with suppress(Exception):  # boundary to third-party code; the preview is optional
                changes = self.tool.preview(self.call.arguments)
        words = [_EFFECT_WORDS[effect] for effect in sorted(effects - HARMLESS)]
        action = " and ".join(words) or "read"
        if (sandbox := sandbox_of(self.tool)) is not None and sandbox.holds:
            action = (
                "run a program in the sandbox, which writes only the workspace and has no network"
            )
        condition = " that this asks about" if judged.by_rule else ""
        always = "this very call" if "execute" in effects else f"every {self.call.name}{condition}"
        text = f"It would {action}.{f' {judged.why}' if judged.why else ''}"
        if judged.always_asks:
            text += " “Always” allows no other."
        elif self.outlasts:
            text += " Going back to try another way does not undo it, so a search asks each time."
            text += f" “Always” allows {always} in turns that do not search."
        else:
            text += f" “Always” allows {always}."
        return ApprovalWanted(
            self.call.id,
            self.call.name,
            dict(self.call.arguments),
            tuple(sorted(effects)),
            text,
            rationale=self.rationale,
            price_nano=self.tool.price_nano,
            changes=changes,
            fault=fault,
            agent=self.agent,
        )


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The decision on a request: the call that may run, with the user's edits, or why it may not."""

    call: Call
    refusal: str = ""
    """The reason as the model reads it; empty if the call may run."""


class Approvals:
    """Decides on calls, and remembers what is allowed for the session and the project."""

    def __init__(
        self,
        rules: Rules,
        person: UserInterface,
        *,
        granted: Iterable[str],
        remember: Callable[[str], None],
        mode: Callable[[], ApprovalMode] = lambda: "ask",
    ) -> None:
        """`granted` is what this project allowed before; `remember` stores further grants."""
        self.mode = mode
        self.rules = rules
        """May be replaced at any time; grants remain."""
        self._person = person
        self._by = "nobody" if isinstance(person, NonInteractive) else "person"
        self._remember = remember
        self._granted = set(granted)
        self.has_reported_sandbox = False
        """Whether the user knows that commands run without a sandbox."""
        self._asking = asyncio.Lock()
        """Lets concurrent calls ask the user one at a time."""

    def trusts(self, traits: Traits) -> bool:
        """Whether a model may write and run what the request does not name."""
        return is_trusted(traits, self.rules.trusted.get(traits.name))

    async def rule(self, request: ApprovalRequest, emit: Emit) -> ApprovalDecision:
        """Decide whether the call may run, by the rules or by asking the user.

        In a search, lasting effects need approval each time, except with `--yes`. The user decides about one call at a
        time, and its grants apply to the next.
        """
        judged, decision = await self._unasked(request, emit)
        if decision is None:
            async with self._asking:
                # grants may have changed meanwhile
                judged, decision = await self._unasked(request, emit)
                decision = decision or await self._ask_user(request, judged, emit)
        return decision

    async def _unasked(
        self, request: ApprovalRequest, emit: Emit
    ) -> tuple[Judgement, ApprovalDecision | None]:
        """The decision by rules, grants and the comparison of a guess; None if the user must be asked.

        For git commands, programs that the repository would run are taken into account.
        """
        rules, call, tool = self.rules, request.call, request.tool
        judged = await asyncio.to_thread(rules.judge, call, tool)
        if judged.verdict != "deny" and request.guess is not None:
            compare = request.guess.deviation
            if deviation := await asyncio.to_thread(compare, call, tool, rules.workspace):
                reason = f"The model is too small to be trusted with it: {deviation}."
                judged = Judgement("ask", reason, always_asks=True, instead=_DO_INSTEAD)
        if judged.verdict == "allow" and judged.git_command:
            reason = await why_not_plain(rules.workspace, judged.git_command)
            judged = Judgement("ask", f"A rule allows it, but {reason}.") if reason else judged
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", agent=request.agent))
            return judged, ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")
        is_allowed = judged.verdict == "allow" or grant(call, tool.effects, judged) in self._granted
        if self.mode() == "plan" and (
            tool.effects & LASTING or not (is_allowed or type(self._person) is not NonInteractive)
        ):
            emit(ApprovalGiven(call.id, "no", "plan mode", agent=request.agent))
            return judged, ApprovalDecision(call, f"{call.name} was not run: {_PLAN_MODE}")
        if self.mode() == "edits" and judged.verdict == "ask" and not judged.by_rule:
            is_allowed = is_allowed or await asyncio.to_thread(rules.is_edit, call, tool)
        runs = is_allowed and not judged.always_asks and (self.rules.yes or not request.outlasts)
        return judged, ApprovalDecision(call) if runs else None

    async def _ask_user(
        self, request: ApprovalRequest, judged: Judgement, emit: Emit
    ) -> ApprovalDecision:
        """Ask the user, again if the tool cannot use edited arguments, and apply the rules to the edited call."""
        call = replace(request.call, id=request.call.id or secrets.token_hex(4))
        tool = request.tool
        fault = ""
        while True:
            edited_request = replace(request, call=call)
            make_question = functools.partial(edited_request.wanted, judged, fault)
            emit(question := mask_secrets(await in_thread(make_question)))
            approval = await self._person.approve(question)
            if approval.decision == "no" or approval.arguments is None:
                break
            call = replace(call, arguments=dict(approval.arguments))
            from ecoshell.models.protocol import call_fault

            fault = await asyncio.to_thread(call_fault, call, [request.schema])
            if not fault:
                break
        edited = call.arguments if dict(call.arguments) != dict(request.call.arguments) else None
        if approval.decision == "no":
            instead = approval.instead.strip()
            emit(ApprovalGiven(call.id, "no", self._by, instead=instead, agent=request.agent))
            reason = f"it was not approved. {judged.instead or judged.why}".rstrip()
            if instead:
                reason = f"the user said no. Do this instead: {instead}"
            elif judged.instead and self._by == "nobody":  # a user has read the reason
                text = f"{visible_line(call.name)} was not run. {judged.why}{_HOW_TO_TRUST}"
                emit(Notice(text))
            return ApprovalDecision(call, f"{call.name} was not run: {reason}")
        if edited is not None:
            judged = await asyncio.to_thread(self.rules.judge, call, tool)
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", edited, agent=request.agent))
            return ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")
        emit(ApprovalGiven(call.id, approval.decision, "person", edited, agent=request.agent))
        if not judged.always_asks:
            await self._grant(grant(call, tool.effects, judged), approval.decision)
        return ApprovalDecision(call)

    async def _grant(self, granted: str, decision: Decision) -> None:
        """Remember a grant as long as the user decided."""
        if decision in ("session", "project"):
            self._granted.add(granted)
        if decision == "project":
            await asyncio.to_thread(self._remember, granted)

    async def reach(self, request: ApprovalRequest) -> Reach:
        """What the program of a call may reach, by the settings and earlier approvals."""
        call, effects = request.call, request.tool.effects
        for wider in ("outside", "network"):
            if f"{wider} {grant(call, effects, Judgement('ask'))}" in self._granted:
                return wider
        return await asyncio.to_thread(self.rules.reach, call, request.tool)

    async def widen(self, request: ApprovalRequest, wider: Reach, reason: str, emit: Emit) -> bool:
        """Ask whether a call may run again with network or outside the sandbox; `--yes` does not allow it."""
        denied = self.rules.denies_network() if wider == "network" else self.rules.denies_files()
        if denied or self.rules.yes or isinstance(self._person, NonInteractive):
            return False
        how = "with network access" if wider == "network" else "outside the sandbox"
        text = f"{reason} It would run again {how}. “Always” allows this very call {how}."
        question = ApprovalWanted(
            request.call.id or secrets.token_hex(4),
            request.call.name,
            dict(request.call.arguments),
            tuple(sorted(request.tool.effects)),
            text,
            rationale=request.rationale,
            agent=request.agent,
        )
        async with self._asking:
            emit(question := mask_secrets(question))
            approval = await self._person.approve(question)
        edited, original = approval.arguments, dict(question.arguments)
        is_edited = edited is not None and dict(edited) != original  # it needs the rules again
        decision = "no" if is_edited else approval.decision
        instead = approval.instead.strip()
        emit(ApprovalGiven(question.id, decision, "person", instead=instead, agent=request.agent))
        granted = grant(request.call, request.tool.effects, Judgement("ask"))
        await self._grant(f"{wider} {granted}", decision)
        return decision != "no"

    async def fill_in(self, wanted: ApprovalWanted, schema: ToolSchema, emit: Emit) -> Approval:
        """Ask the user about something other than a call, without rules, until the arguments are valid."""
        from ecoshell.models.protocol import call_fault

        async with self._asking:
            while True:
                emit(wanted)
                approval = await self._person.approve(wanted)
                arguments = wanted.arguments if approval.arguments is None else approval.arguments
                call, fault = Call(schema.name, arguments), ""
                if approval.decision != "no":
                    fault = await asyncio.to_thread(call_fault, call, [schema])
                if not fault:
                    emit(ApprovalGiven(wanted.id, approval.decision, self._by))
                    return replace(approval, arguments=arguments)
                wanted = replace(wanted, arguments=arguments, fault=fault)


def grant(call: Call, effects: frozenset[Effect], judged: Judgement) -> str:
    """The grant that "always" gives: exactly this call for a tool that executes, otherwise the tool.

    If a rule asked, the grant is limited to that rule.
    """
    if "execute" not in effects:
        return f"{call.name} ({judged.why})" if judged.by_rule else call.name
    values = list(call.arguments.values())
    only_text = values[0] if len(values) == 1 and isinstance(values[0], str) else None
    return f"{call.name}:{json.dumps(dict(call.arguments), sort_keys=True) if only_text is None else only_text}"


@dataclass(frozen=True)
class Approved(Guard):
    """Asks for approval before anything but reading; reports arguments that the user edited to the model."""

    catalog: Catalog
    approvals: Approvals
    models: ActiveModels
    searching: bool
    """Whether the agent may backtrack and try another path."""
    agent: str
    """The name of the subagent that makes the calls; empty for the session's own agent."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog, approvals, tool = self.catalog, self.approvals, self.catalog.tool(call.name)
        lasting, caller, guess = tool.effects & LASTING, self.models.current.caller.traits, None
        if lasting and not approvals.trusts(caller):
            tools = map(catalog.tool, catalog.names)
            similar = tuple(tool.schema for tool in tools if tool.effects & LASTING == lasting)
            guess = Guess(context.path.question, context.path.steps, similar, caller.small)
        schema, rationale = catalog.schema(call.name), context.rationale
        request = ApprovalRequest(call, tool, schema, rationale, self.searching, guess, self.agent)
        ruling = await approvals.rule(request, context.emit)
        original, edited = call.arguments, ruling.call.arguments
        if ruling.refusal:
            observation = refuse("unapproved", ruling.refusal)
        else:
            observation = await self.inner.execute(ruling.call, context)
        edits = [
            f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
            for name, value in edited.items()
            if name not in original or original[name] != value
        ]
        edits += [f"{name} omitted" for name in original if name not in edited]
        if not edits:
            return observation
        note = f"The user changed the arguments to {clip(', '.join(edits), _EDIT_CHARACTERS)[0]}.\n"
        return replace(observation, text=f"{note}{observation.text}")


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

    catalog: Catalog
    approvals: Approvals
    agent: str
    """The name of the subagent that makes the calls; empty for the session's own agent."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool = self.catalog.tool(call.name)
        protection.set(await asyncio.to_thread(self.approvals.rules.protection, call, tool))
        sandbox = sandbox_of(tool)
        if sandbox is None:
            return await self.inner.execute(call, context)
        approvals = self.approvals
        schema, rationale = self.catalog.schema(call.name), context.rationale
        request = ApprovalRequest(call, tool, schema, rationale, agent=self.agent)
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
            note = f"[{LACKS[lacked].capitalize()}. {hint}]"
            return replace(observation, text=f"{observation.text}\n{note}")
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
        approvals = self.approvals
        if sandbox.mode == "auto" and not approvals.has_reported_sandbox and sandbox.problem:
            approvals.has_reported_sandbox = True
            context.emit(Notice(f"Commands run without a sandbox. {sandbox.problem}"))
