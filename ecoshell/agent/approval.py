"""Approval of calls and of spending: by rules, by earlier approvals, and by the user.

Small models may only write and run what the request names. This is decided from the effects of the tool and the
sources of the call's arguments, not from the phrasing of the request. Before an expensive step and at a limit, the
turn pauses and the user decides.
"""

import asyncio
import functools
import json
import posixpath
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ecoshell.agent import Approval, CostChoice, LimitChoice, NonInteractive, UserInterface
from ecoshell.agent.cost_bounds import (
    NOTHING,
    CostBound,
    of_conclusion,
    of_step,
    unpriced,
    used,
    with_room,
)
from ecoshell.agent.mode import CallForecast, Mode, View
from ecoshell.agent.rules import HARMLESS, Judgement, Rules
from ecoshell.budget import CapState, Scope, Unit, fitting_output, parse_amount, rounded_up
from ecoshell.errors import BudgetError, EcoshellError, LimitReached
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetChanged,
    CostChosen,
    CostWanted,
    Emit,
    LimitChosen,
    LimitHit,
    ModelOffer,
    Notice,
)
from ecoshell.messages import Call, Effect, ToolSchema, Usage, visible_line
from ecoshell.models import Traits
from ecoshell.options import NO_ROLE_MODELS, ApprovalMode
from ecoshell.secrecy import mask_secrets
from ecoshell.strategies import Step
from ecoshell.tools import LASTING, Previewing, Subject, Tool, sandbox_of, subjects_of
from ecoshell.tools.git_state import why_not_plain
from ecoshell.tools.running import in_thread
from ecoshell.tools.sandbox import Reach

if TYPE_CHECKING:
    from ecoshell.agent.dependencies import Dependencies

TRUSTED_PARAMETERS = 3_000_000_000
"""A model with fewer weights may only write and run what the request names; models of unknown size are trusted."""
_LEADING_VERBS = re.compile(r"\w+(?:, \w+)*(?:,? or \w+)?")
_DO_INSTEAD = "Answer the request in your own words, or use a tool that only reads."
"""What a weak model reads instead of a reason, which it would repeat as its answer."""
_HOW_TO_TRUST = " `trusted = true` for the model in the settings leaves that to the rules."
_PLAN_MODE = (
    "plan mode runs only tools that read. Call no other tool; end with a numbered plan of what you would do, which the "
    "user accepts or changes."
)
_EFFECT_WORDS: Mapping[Effect, str] = {
    "read": "read files",
    "write": "change files",
    "execute": "run a program",
    "network": "reach the network",
}


def is_trusted(traits: Traits, setting: bool | None = None) -> bool:
    """Whether a model may write and run what the request does not name; `setting` overrides the default."""
    return (
        setting
        if setting is not None
        else traits.parameters is None or traits.parameters >= TRUSTED_PARAMETERS
    )


def verbs(schemas: Iterable[ToolSchema]) -> frozenset[str]:
    """The verbs with which requests ask for tools: those at the beginning of their names and descriptions."""
    words: set[str] = set()
    for schema in schemas:
        (first, underscore, _), leading = (
            schema.name.partition("_"),
            _LEADING_VERBS.match(schema.description),
        )
        words.update(
            (first if underscore else "", *re.findall(r"\w+", leading.group() if leading else ""))
        )
    return frozenset(word.lower() for word in words if len(word) > 1 and word.isalpha()) - {
        "or",
        "the",
        "an",
    }


@dataclass(frozen=True, slots=True)
class Guess:
    """What a call of an untrusted model is compared with."""

    question: str
    steps: Sequence[Step]
    """Earlier steps of the turn."""
    similar: Sequence[ToolSchema]
    """Tools with the same lasting effects as the called one."""
    exact: bool
    """Whether every argument must occur in the question or in results, as for the smallest models."""

    def deviation(self, call: Call, tool: Tool, workspace: Path) -> str:
        """What the call does beyond the request; empty if nothing, and for a tool without lasting effects.

        Reads the disk: only existing files must be named in the request or have been read.
        """
        if not tool.effects & LASTING:
            return ""
        tool_verbs = verbs([tool.schema] if self.exact else self.similar)
        if tool_verbs.isdisjoint(re.findall(r"\w+", self.question.lower())):
            return f"the request does not say so ({' or '.join(sorted(verbs([tool.schema])))})"
        done = [step for step in self.steps if step.observation.ok]
        if self.exact:
            source = [step.observation.text for step in done]
            values = _texts(call, call.arguments)
        else:
            source = [text for step in done for text in _texts(step.call, step.call.arguments)]
            paths = [name for name, subject in subjects_of(tool).items() if subject is Subject.PATH]
            values = [path for path in _texts(call, paths) if posixpath.exists(workspace / path)]
        context = " ".join("\n".join((self.question, *source)).split())
        for value in values:
            text = " ".join(value.removeprefix("./").split())
            if not text or not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", context):
                return f"“{value[:80]}” is neither in the request nor was it read"
        return ""


def _texts(call: Call, names: Iterable[str]) -> list[str]:
    """The values of these arguments, as texts."""
    values = [call.arguments[name] for name in names if name in call.arguments]
    return [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    ]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs a decision."""

    call: Call
    tool: Tool
    schema: ToolSchema
    """The tool's schema in the catalog."""
    rationale: str = ""
    """The agent's reason for the call."""
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
        try:
            changes = (
                self.tool.preview(self.call.arguments) if isinstance(self.tool, Previewing) else ""
            )
        except Exception:  # noqa: BLE001 - boundary to third-party code; the preview is optional
            changes = ""
        effects = self.tool.effects
        action = (
            " and ".join(_EFFECT_WORDS[effect] for effect in sorted(effects - HARMLESS)) or "read"
        )
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
                judged, decision = await self._unasked(
                    request, emit
                )  # grants may have changed meanwhile
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
            deviation = await asyncio.to_thread(
                request.guess.deviation, call, tool, rules.workspace
            )
            if deviation:
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
            emit(ApprovalGiven(call.id, "no", "plan mode"))
            return judged, ApprovalDecision(call, f"{call.name} was not run: {_PLAN_MODE}")
        if self.mode() == "edits" and judged.verdict == "ask" and not judged.by_rule:
            is_allowed = is_allowed or await asyncio.to_thread(rules.is_edit, call, tool)
        runs = is_allowed and not judged.always_asks and (self.rules.yes or not request.outlasts)
        return judged, ApprovalDecision(call) if runs else None

    async def _ask_user(
        self, request: ApprovalRequest, judged: Judgement, emit: Emit
    ) -> ApprovalDecision:
        """Ask the user, again if the tool cannot use edited arguments, and apply the rules to the edited call."""
        call, tool, fault = (
            replace(request.call, id=request.call.id or secrets.token_hex(4)),
            request.tool,
            "",
        )
        while True:
            edited_request = replace(request, call=call)
            question = mask_secrets(
                await in_thread(functools.partial(edited_request.wanted, judged, fault))
            )
            emit(question)
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
            by, instead = (
                "nobody" if isinstance(self._person, NonInteractive) else "person",
                approval.instead.strip(),
            )
            emit(ApprovalGiven(call.id, "no", by, instead=instead, agent=request.agent))
            if instead:
                reason = f"the user said no. Do this instead: {instead}"
            else:
                if (
                    judged.instead and by == "nobody"
                ):  # a user who was asked has read the reason; the model does not
                    emit(
                        Notice(
                            f"{visible_line(call.name)} was not run. {judged.why}{_HOW_TO_TRUST}"
                        )
                    )
                reason = f"it was not approved. {judged.instead or judged.why}".rstrip()
            return ApprovalDecision(call, f"{call.name} was not run: {reason}")
        if edited is not None:
            judged = await asyncio.to_thread(self.rules.judge, call, tool)
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", edited, agent=request.agent))
            return ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")
        emit(ApprovalGiven(call.id, approval.decision, "person", edited, agent=request.agent))
        if not judged.always_asks and approval.decision in ("session", "project"):
            granted = grant(call, tool.effects, judged)
            self._granted.add(granted)
            if approval.decision == "project":
                await asyncio.to_thread(self._remember, granted)
        return ApprovalDecision(call)

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
        )
        async with self._asking:
            emit(question := mask_secrets(question))
            approval = await self._person.approve(question)
        is_edited = approval.arguments is not None and dict(approval.arguments) != dict(
            question.arguments
        )
        decision = "no" if is_edited else approval.decision  # An edited call needs the rules again.
        emit(ApprovalGiven(question.id, decision, "person", instead=approval.instead.strip()))
        if decision in ("session", "project"):
            granted = f"{wider} {grant(request.call, request.tool.effects, Judgement('ask'))}"
            self._granted.add(granted)
            if decision == "project":
                await asyncio.to_thread(self._remember, granted)
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
                    by = "nobody" if isinstance(self._person, NonInteractive) else "person"
                    emit(ApprovalGiven(wanted.id, approval.decision, by))
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


_OFFER_LIMIT = 5
_USUAL_OUTPUT = 2_048
"""Output tokens of a reply in a proposed cap; the models' own limits are much larger."""
"""Models offered at once."""
SHORT_ANSWER = 64
"""Output tokens in the lower estimate of a step: a call with its arguments, or a sentence."""


class AnswerNow(Exception):
    """Take no further steps, and answer with the results so far."""


class StopNow(Exception):
    """Stop without an answer."""


@dataclass(slots=True)
class SpendApproval:
    """Asks the user about money, and carries out the choices. Each session has one."""

    deps: "Dependencies"
    ending: AnswerNow | StopNow | None = None
    """The user's choice to end the turn, made during a call, which the next step carries out."""
    _trusted: set[str] = field(default_factory=set[str])
    """Models whose expensive steps run without asking in this session."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def mode(self) -> Mode:
        """The current mode, which changes when the user chooses another model."""
        return self.deps.models.current.mode

    async def before_step(self, view: View, emit: Emit) -> None:
        """Ask before an expensive step; raises AnswerNow, StopNow or PriceUnknown.

        A step with a call of unknown price under a cap in dollars is refused before anything is paid.
        """
        if self.ending is not None:
            raise self.ending
        forecast = self.mode.forecast(view)
        if any(call.model.traits.price is None for call in forecast.steps):
            refusal = unpriced(forecast, await self.deps.budget.caps())
            if refusal is not None:
                raise refusal
        while (question := await self._cost_question(view)) is not None:
            emit(question)
            choice = await self.deps.user.at_cost(question)
            emit(CostChosen(choice.kind))
            if choice.kind == "always":
                self._trusted.add(question.model)
            if choice.kind in ("go", "always"):
                break
            await self._carry_out(choice, emit)

    async def at_limit(self, hit: LimitReached, view: View, emit: Emit) -> None:
        """Ask what to do at a limit, and do it; raises AnswerNow or StopNow."""
        caps = await self.deps.budget.caps()
        offers, enough = await self._offers(view, caps), 0
        cap = next((cap for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)), None)
        if cap is not None:  # room for a step and the answer
            bound = (
                sum(await asyncio.to_thread(proposed_bounds, self.mode, view), NOTHING).in_unit_of(
                    cap
                )
                or 0
            )
            enough = rounded_up(
                max(used(cap, self.mode.answer_hold) + bound, cap.limit - cap.left + hit.need)
            )
            if cap.unit == "ms":  # how long a step takes is not known in advance
                enough = 2 * cap.limit
        event = LimitHit(
            hit.scope,
            cast("Unit", hit.unit),
            hit.need,
            hit.left,
            str(hit),
            offers=offers,
            enough=enough,
        )
        while True:
            emit(event)
            choice = await self.deps.user.at_limit(event)
            emit(LimitChosen(choice.kind))
            if await self._carry_out(choice, emit, scope=cast("Scope", event.scope)):
                return

    async def for_tool(self, hit: LimitReached, view: View, emit: Emit) -> bool:
        """Ask about a tool that is refused for its cost while budget is left; returns whether to try it again.

        Without a user it stays refused. Concurrent calls ask one at a time, and no decision ends the turn: the next
        step does.
        """
        async with self._asking:
            if (
                isinstance(self.deps.user, NonInteractive)
                or self.ending is not None
                or hit.left <= 0
            ):
                return False
            try:
                await self.at_limit(hit, view, emit)
            except (AnswerNow, StopNow) as ending:
                self.ending = ending
                return False
            return True

    async def _carry_out(
        self, choice: LimitChoice | CostChoice, emit: Emit, scope: Scope = "session"
    ) -> bool:
        """Carry out the user's choice; False if it is impossible, so that the user can decide again."""
        if choice.kind == "answer":
            raise AnswerNow
        if choice.kind == "stop":
            raise StopNow
        models, budget = self.deps.models, self.deps.budget
        try:
            if choice.kind == "model":
                several = len(models.current.models) > 1
                await models.change(
                    model=choice.value, roles=NO_ROLE_MODELS if models.current.players else None
                )
                if several:
                    emit(Notice(f"{models.name} plays every role from now on."))
            else:
                await budget.set_cap(scope, parse_amount(choice.value))
                emit(BudgetChanged(await budget.caps()))
        except EcoshellError as error:  # such as a mistyped amount or model
            emit(Notice(str(error)))
            return False
        return True

    async def _cost_question(self, view: View) -> CostWanted | None:
        """The question about an expensive step; None if it needs no approval, or if no price is known."""
        threshold = self.deps.settings.ask_above_nano
        if threshold is None:
            return None
        calls = [
            call
            for call in self.mode.forecast(view).steps
            if call.model.traits.name not in self._trusted
        ]
        caps = await self.deps.budget.caps()
        dearest = await asyncio.to_thread(_dearest, calls, caps)
        if dearest is None or dearest[2] <= threshold:
            return None
        call, low, high = dearest
        offers = await self._offers(view, caps)
        cheaper = tuple(
            offer for offer in offers if offer.most_nano is not None and offer.most_nano < high
        )
        return CostWanted(call.role, call.model.traits.name, low, high, threshold, cheaper)

    async def _offers(self, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
        """Models that fit the caps or are cheaper than the current one, cheapest first.

        Each would play every role, so the models of several roles are offered as well. No model is loaded.
        """
        models, mode, offers = self.deps.models, self.mode, list[ModelOffer]()
        own = (
            [model.traits.name for model in models.current.models] if models.current.players else []
        )
        current, _ = await asyncio.to_thread(_bounds, mode, view)
        barred = await asyncio.to_thread(self.deps.budget.gate.ledger.barred)
        for name in {
            *own,
            *await asyncio.to_thread(models.factory.substitutes, models.name),
        } - barred.keys():
            try:
                other = await asyncio.to_thread(models.factory.make, name, mode.name)
            except EcoshellError:  # such as a missing file or key
                continue
            try:
                step, conclusion = await asyncio.to_thread(_bounds, other.mode, view)
            finally:
                for model in other.models:
                    await model.aclose()
            traits, fits = (
                other.model.traits,
                with_room(other.capped_by(caps), mode.answer_hold, step + conclusion),
            )
            if fits or (
                step.nano is not None and (current.nano is None or step.nano < current.nano)
            ):
                offers.append(ModelOffer(traits.name, traits.local, step.nano, step.tokens, fits))
        offers.sort(
            key=lambda offer: (
                not offer.fits,
                offer.most_nano is None,
                offer.most_nano or 0,
                offer.name,
            )
        )
        return tuple(offers[:_OFFER_LIMIT])


def _bounds(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """The worst case of the next step and of the answer; may block."""
    forecast = mode.forecast(view)
    return of_step(forecast), of_conclusion(forecast)


def proposed_bounds(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """The same with replies of usual length; may block."""

    def shortened(call: CallForecast) -> CallForecast:
        output = min(call.request.max_tokens, _USUAL_OUTPUT)
        return replace(call, request=replace(call.request, max_tokens=output))

    forecast = mode.forecast(view)
    conclusion = None if forecast.conclusion is None else shortened(forecast.conclusion)
    forecast = replace(forecast, steps=tuple(map(shortened, forecast.steps)), conclusion=conclusion)
    return of_step(forecast), of_conclusion(forecast)


def _dearest(
    calls: Sequence[CallForecast], caps: Sequence[CapState]
) -> tuple[CallForecast, int, int] | None:
    """The call with the highest worst case, with its price if short and at most, in nano-dollars.

    None if no price is known, or if the gate would refuse a call.
    """
    costs: list[tuple[CallForecast, int, int]] = []
    for call in calls:
        price = call.model.traits.price
        if price is None:
            continue
        ask = call.model.reservation(call.request, call.role)
        try:
            output = fitting_output(ask, caps)
        except BudgetError:
            return None
        prompt = call.model.size(call.request).count
        short = Usage(input=prompt, output=min(SHORT_ANSWER, output), cached=prompt)
        costs.append((call, price.cost(short), price.worst(ask.prompt_tokens, output)))
    return max(costs, key=lambda cost: cost[2], default=None)
