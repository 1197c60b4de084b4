"""Who may do what, and what may be spent: rules of the settings, what was allowed before, and the person.

What a model may write and run that is too small to be trusted with it is what the request plainly names. That goes by
what a tool does and by where the words of a call stand, never by how requests are phrased. A turn pauses for money
before an expensive step and at a limit, and the person chooses how to go on.
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
from ecoshell.agent.cost_bounds import NOTHING, CostBound, of_conclusion, of_step, unpriced, used, with_room
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
from ecoshell.messages import Call, Effect, ToolDocument, Usage, visible_line
from ecoshell.models import Traits
from ecoshell.options import NO_ROLE_MODELS
from ecoshell.secrecy import mask_secrets
from ecoshell.strategies import Step
from ecoshell.tools import LASTING, Previewing, Subject, Tool, subjects_of
from ecoshell.tools.git_state import why_not_plain
from ecoshell.tools.running import in_thread

if TYPE_CHECKING:
    from ecoshell.agent.dependencies import Dependencies

TRUSTED_PARAMETERS = 3_000_000_000
"""A model with fewer weights is not trusted with what the request does not name; one of unknown size is."""
_LEADING_VERBS = re.compile(r"\w+(?:, \w+)*(?:,? or \w+)?")
_DO_INSTEAD = "Answer the request in your own words, or use a tool that only reads."
"""What a weak model is told in the place of a reason, which it would give as its answer."""
_HOW_TO_TRUST = " `trusted = true` for the model in the settings leaves that to the rules."
_EFFECT_WORDS: Mapping[Effect, str] = {
    "read": "read files",
    "write": "change files",
    "execute": "run a program",
    "network": "reach the network",
}


def is_trusted(traits: Traits, said: bool | None = None) -> bool:
    """Whether a model may write and run what it sees fit; `said` is what the settings say of it."""
    return said if said is not None else traits.parameters is None or traits.parameters >= TRUSTED_PARAMETERS


def verbs(documents: Iterable[ToolDocument]) -> frozenset[str]:
    """The verbs by which tools are called for: those their names and descriptions begin with."""
    words: set[str] = set()
    for document in documents:
        named, described = document.name.partition("_"), _LEADING_VERBS.match(document.description)
        words.update((named[0] if named[1] else "", *re.findall(r"\w+", described.group() if described else "")))
    return frozenset(word.lower() for word in words if len(word) > 1 and word.isalpha()) - {"or", "the", "an"}


@dataclass(frozen=True, slots=True)
class Guess:
    """What a call of a model that is not trusted is held against."""

    asked: str
    """The question."""
    steps: Sequence[Step]
    """What was done before in the turn."""
    alike: Sequence[ToolDocument]
    """The tools that leave behind the same kind of thing as the one that is called."""
    exact: bool
    """Whether all of a call is to stand in the question or in results: the smallest models word nothing."""

    def strange(self, call: Call, tool: Tool, workspace: Path) -> str:
        """What of a call is not in the request; empty where nothing is, and for a tool that leaves nothing behind.

        Looks at the disk: only a file that is there must be named, or have been read.
        """
        if not tool.effects & LASTING:
            return ""
        wanted = verbs([tool.document] if self.exact else self.alike)
        if wanted.isdisjoint(re.findall(r"\w+", self.asked.lower())):
            return f"the request does not say so ({' or '.join(sorted(verbs([tool.document])))})"
        done = [step for step in self.steps if step.observation.ok]
        if self.exact:
            source = [step.observation.text for step in done]
            values = _texts(call, call.arguments)
        else:
            source = [text for step in done for text in _texts(step.call, step.call.arguments)]
            places = [name for name, subject in subjects_of(tool).items() if subject is Subject.PATH]
            values = [path for path in _texts(call, places) if posixpath.exists(workspace / path)]
        known = " ".join("\n".join((self.asked, *source)).split())
        for value in values:
            wanted = " ".join(value.removeprefix("./").split())
            if not wanted or not re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", known):  # as words of its own
                return f"“{value[:80]}” is neither in the request nor was it read"
        return ""


def _texts(call: Call, names: Iterable[str]) -> list[str]:
    """The values of these arguments, as texts."""
    values = [call.arguments[name] for name in names if name in call.arguments]
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that wants to run, and what there is to know of it."""

    call: Call
    tool: Tool
    document: ToolDocument
    """As the catalog names the tool."""
    rationale: str = ""
    """Why the agent makes the call."""
    searching: bool = False
    """Whether the agent may go back from here and try another way."""
    guess: Guess | None = None
    """What the call is held against, where a model made it that is not trusted."""

    @property
    def outlasts(self) -> bool:
        """Whether a search that goes back leaves behind what the call does."""
        return self.searching and bool(self.tool.effects & LASTING)

    def wanted(self, judged: Judgement, fault: str = "") -> ApprovalWanted:
        """The question to a person; may block."""
        try:
            changes = self.tool.preview(self.call.arguments) if isinstance(self.tool, Previewing) else ""
        except Exception:  # noqa: BLE001 - a tool may be anybody's code; a call can be judged without a preview
            changes = ""
        effects = self.tool.effects
        would = " and ".join(_EFFECT_WORDS[effect] for effect in sorted(effects - HARMLESS)) or "read"
        under = " that this asks about" if judged.by_rule else ""
        always = "this very call" if "execute" in effects else f"every {self.call.name}{under}"
        said = f"It would {would}.{f' {judged.why}' if judged.why else ''}"
        if judged.always_asks:
            said += " “Always” allows no other."
        elif self.outlasts:
            said += " Going back to try another way does not undo it, so a search asks each time."
            said += f" “Always” allows {always} in turns that do not search."
        else:
            said += f" “Always” allows {always}."
        return ApprovalWanted(
            self.call.id,
            self.call.name,
            dict(self.call.arguments),
            tuple(sorted(effects)),
            said,
            rationale=self.rationale,
            price_nano=self.tool.price_nano,
            changes=changes,
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """What became of a request: the call that may run, which a person may have changed, or why none may."""

    call: Call
    refusal: str = ""
    """In words for the model; empty when the call may run."""


class Approvals:
    """Decides on calls; remembers what is allowed for the session, and hands on what is allowed for the project."""

    def __init__(
        self, rules: Rules, person: UserInterface, *, granted: Iterable[str], remember: Callable[[str], None]
    ) -> None:
        """`granted` is what this project allowed before, `remember` keeps what it allows from now on."""
        self.rules = rules
        """From the next call on, also where they are replaced; what was granted stays granted."""
        self._person = person
        self._remember = remember
        self._granted = set(granted)
        self._asking = asyncio.Lock()
        """Branches that run side by side wait their turn to ask the person."""

    def trusts(self, traits: Traits) -> bool:
        """Whether a model may write and run what the request does not name."""
        return is_trusted(traits, self.rules.trusted.get(traits.name))

    async def rule(self, request: ApprovalRequest, emit: Emit) -> ApprovalDecision:
        """Whether the call may run, by the rules or by the person's word.

        In a search, what cannot be undone by going back is asked about each time, but for `--yes`. One call is asked
        about at a time; the next one goes by what was said of those before it.
        """
        judged, decision = await self._unasked(request, emit)
        if decision is None:
            async with self._asking:
                judged, decision = await self._unasked(request, emit)  # what holds by now: the wait may have been long
                decision = decision or await self._asked(request, judged, emit)
        return decision

    async def _unasked(self, request: ApprovalRequest, emit: Emit) -> tuple[Judgement, ApprovalDecision | None]:
        """What the rules, what was granted and what becomes of a guess say; no decision where a person has to be asked.

        What a repository has run for a command is looked for.
        """
        rules, call, tool = self.rules, request.call, request.tool
        judged = await asyncio.to_thread(rules.judge, call, tool)
        if judged.verdict != "deny" and request.guess is not None:
            strange = await asyncio.to_thread(request.guess.strange, call, tool, rules.workspace)
            if strange:
                why = f"The model is too small to be trusted with it: {strange}."
                judged = Judgement("ask", why, always_asks=True, instead=_DO_INSTEAD)
        if judged.verdict == "allow" and judged.git_command:
            why = await why_not_plain(rules.workspace, judged.git_command)
            judged = Judgement("ask", f"A rule allows it, but {why}.") if why else judged
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule"))
            return judged, ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")
        allowed = judged.verdict == "allow" or grant(call, tool.effects, judged) in self._granted
        runs = allowed and not judged.always_asks and (self.rules.yes or not request.outlasts)
        return judged, ApprovalDecision(call) if runs else None

    async def _asked(self, request: ApprovalRequest, judged: Judgement, emit: Emit) -> ApprovalDecision:
        """Carry out the person's word on the call; arguments that the tool cannot take are asked for again.

        The rules apply to a changed call as to any other.
        """
        call, tool, fault = replace(request.call, id=request.call.id or secrets.token_hex(4)), request.tool, ""
        while True:
            asked = replace(request, call=call)
            wanted = mask_secrets(await in_thread(functools.partial(asked.wanted, judged, fault)))
            emit(wanted)
            approval = await self._person.approve(wanted)
            if approval.decision == "no" or approval.arguments is None:
                break
            call = replace(call, arguments=dict(approval.arguments))
            from ecoshell.models.protocol import call_fault

            fault = await asyncio.to_thread(call_fault, call, [request.document])
            if not fault:
                break
        edited = call.arguments if dict(call.arguments) != dict(request.call.arguments) else None
        if approval.decision == "no":
            by, instead = "nobody" if isinstance(self._person, NonInteractive) else "person", approval.instead.strip()
            emit(ApprovalGiven(call.id, "no", by, instead=instead))
            if instead:
                told = f"the person said no. Do this instead: {instead}"
            else:
                if judged.instead and by == "nobody":  # who was asked has read why; the model does not hear it
                    emit(Notice(f"{visible_line(call.name)} was not run. {judged.why}{_HOW_TO_TRUST}"))
                told = f"it was not approved. {judged.instead or judged.why}".rstrip()
            return ApprovalDecision(call, f"{call.name} was not run: {told}")
        if edited is not None:
            judged = await asyncio.to_thread(self.rules.judge, call, tool)
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", edited))
            return ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")
        emit(ApprovalGiven(call.id, approval.decision, "person", edited))
        granted = grant(call, tool.effects, judged)
        if not judged.always_asks and approval.decision in ("session", "project"):
            self._granted.add(granted)
            if approval.decision == "project":
                await asyncio.to_thread(self._remember, granted)
        return ApprovalDecision(call)

    async def fill_in(self, wanted: ApprovalWanted, document: ToolDocument, emit: Emit) -> Approval:
        """The person's word on something beside a call, no rule asked; what they make of its arguments is valid."""
        from ecoshell.models.protocol import call_fault

        async with self._asking:
            while True:
                emit(wanted)
                approval = await self._person.approve(wanted)
                given = wanted.arguments if approval.arguments is None else approval.arguments
                call, fault = Call(document.name, given), ""
                if approval.decision != "no":
                    fault = await asyncio.to_thread(call_fault, call, [document])
                if not fault:
                    by = "nobody" if isinstance(self._person, NonInteractive) else "person"
                    emit(ApprovalGiven(wanted.id, approval.decision, by))
                    return replace(approval, arguments=given)
                wanted = replace(wanted, arguments=given, fault=fault)


def grant(call: Call, effects: frozenset[Effect], judged: Judgement) -> str:
    """What "always" stands for, taken to the letter: this very call for what executes, the tool for the rest.

    Where a rule asked, it is the tool under that rule.
    """
    if "execute" not in effects:
        return f"{call.name} ({judged.why})" if judged.by_rule else call.name
    values = list(call.arguments.values())
    alone = values[0] if len(values) == 1 and isinstance(values[0], str) else None
    return f"{call.name}:{json.dumps(dict(call.arguments), sort_keys=True) if alone is None else alone}"


_MOST_OFFERED = 5
"""Models offered at once."""
SHORT_ANSWER = 64
"""Tokens of output in the low end of an estimate: a call with its arguments, or a sentence."""


class AnswerNow(Exception):
    """No further steps: answer from what there is."""


class StopNow(Exception):
    """Stop without an answer."""


@dataclass(slots=True)
class SpendApproval:
    """Carries questions of money to the person, and the choices back into the turn. One session has one."""

    deps: "Dependencies"
    ending: AnswerNow | StopNow | None = None
    """How the person wants the turn to end, said beside a call; the next step does it. None as a turn begins."""
    _trusted: set[str] = field(default_factory=set[str])
    """Models whose expensive steps go on unasked in this session."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def mode(self) -> Mode:
        """Who thinks from now on: another than before, once the person has chosen another model."""
        return self.deps.models.current.mode

    async def before_step(self, view: View, emit: Emit) -> None:
        """Ask before the next step where it is expensive; raises AnswerNow, StopNow or PriceUnknown.

        A step one of whose later calls would be refused, as its price is not known, is refused before anything is paid.
        """
        if self.ending is not None:
            raise self.ending
        forecast = self.mode.forecast(view)
        if any(call.model.traits.price is None for call in forecast.steps):  # else the ledger need not be asked
            refused = unpriced(forecast, await self.deps.budget.caps())
            if refused is not None:
                raise refused
        while (wanted := await self._costly(view)) is not None:
            emit(wanted)
            choice = await self.deps.user.at_cost(wanted)
            emit(CostChosen(choice.kind))
            if choice.kind == "always":
                self._trusted.add(wanted.model)
            if choice.kind in ("go", "always"):
                break
            await self._carry_out(choice, emit)

    async def at_limit(self, hit: LimitReached, view: View, emit: Emit) -> None:
        """Ask what to do, and do it; raises AnswerNow or StopNow."""
        caps = await self.deps.budget.caps()
        offers, enough = await self._offers(view, caps), 0
        cap = next((cap for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)), None)
        if cap is not None:  # a cap under which the step fits at its longest, and the answer after it
            most = sum(await asyncio.to_thread(_most, self.mode, view), NOTHING).in_unit_of(cap) or 0
            enough = rounded_up(max(used(cap, self.mode.answer_hold) + most, cap.limit - cap.left + hit.need))
        wanted = LimitHit(hit.scope, cast("Unit", hit.unit), hit.need, hit.left, str(hit), offers=offers, enough=enough)
        while True:
            emit(wanted)
            choice = await self.deps.user.at_limit(wanted)
            emit(LimitChosen(choice.kind))
            if await self._carry_out(choice, emit, scope=cast("Scope", wanted.scope)):
                return

    async def for_tool(self, hit: LimitReached, view: View, emit: Emit) -> bool:
        """Ask as at a limit about a tool that is refused for money while some is left; true where it may be tried anew.

        Where nobody is there it stays refused. Calls that run side by side ask one after another, and none of them ends
        the turn under the others: the next step does.
        """
        async with self._asking:
            if isinstance(self.deps.user, NonInteractive) or self.ending is not None or hit.left <= 0:
                return False
            try:
                await self.at_limit(hit, view, emit)
            except (AnswerNow, StopNow) as ending:
                self.ending = ending
                return False
            return True

    async def _carry_out(self, choice: LimitChoice | CostChoice, emit: Emit, scope: Scope = "session") -> bool:
        """Do as the person chose; false when that cannot be done, and they are to be asked once more."""
        if choice.kind == "answer":
            raise AnswerNow
        if choice.kind == "stop":
            raise StopNow
        models, budget = self.deps.models, self.deps.budget
        try:
            if choice.kind == "model":
                several = len(models.current.models) > 1
                await models.change(model=choice.value, roles=NO_ROLE_MODELS if models.current.players else None)
                if several:
                    emit(Notice(f"{models.name} plays every role from now on."))
            else:
                await budget.set_cap(scope, parse_amount(choice.value))
                emit(BudgetChanged(await budget.caps()))
        except EcoshellError as refused:  # a mistyped amount or model is no reason to lose the turn
            emit(Notice(str(refused)))
            return False
        return True

    async def _costly(self, view: View) -> CostWanted | None:
        """The question that the next step is worth; None when it goes on unasked, as where no price is known."""
        above = self.deps.settings.ask_above_nano
        if above is None:
            return None
        calls = [call for call in self.mode.forecast(view).steps if call.model.traits.name not in self._trusted]
        caps = await self.deps.budget.caps()
        dearest = await asyncio.to_thread(_dearest, calls, caps)
        if dearest is None or dearest[2] <= above:
            return None
        call, low, high = dearest
        offers = await self._offers(view, caps)
        cheaper = tuple(offer for offer in offers if offer.most_nano is not None and offer.most_nano < high)
        return CostWanted(call.role, call.model.traits.name, low, high, above, cheaper)

    async def _offers(self, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
        """Models for which the caps have room, or that are cheaper than the present one; the cheapest first.

        Each is to do everything there is; of several that play now, each could go on alone. Nothing of them is loaded.
        """
        models, mode, offers = self.deps.models, self.mode, list[ModelOffer]()
        own = [model.traits.name for model in models.current.models] if models.current.players else []
        present, _ = await asyncio.to_thread(_most, mode, view)
        barred = await asyncio.to_thread(self.deps.budget.gate.ledger.barred)
        for name in {*own, *await asyncio.to_thread(models.factory.substitutes, models.name)} - barred.keys():
            try:
                other = await asyncio.to_thread(models.factory.make, name, mode.name)
            except EcoshellError:  # a file that is gone or a missing key: one offer less
                continue
            try:
                step, conclusion = await asyncio.to_thread(_most, other.mode, view)
            finally:
                for one in other.models:
                    await one.aclose()
            traits, fits = other.model.traits, with_room(other.capped_by(caps), mode.answer_hold, step + conclusion)
            if fits or (step.nano is not None and (present.nano is None or step.nano < present.nano)):
                offers.append(ModelOffer(traits.name, traits.local, step.nano, step.tokens, fits))
        offers.sort(key=lambda offer: (not offer.fits, offer.most_nano is None, offer.most_nano or 0, offer.name))
        return tuple(offers[:_MOST_OFFERED])


def _most(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """What the next step takes at its longest, and the answer after it; may block."""
    forecast = mode.forecast(view)
    return of_step(forecast), of_conclusion(forecast)


def _dearest(calls: Sequence[CallForecast], caps: Sequence[CapState]) -> tuple[CallForecast, int, int] | None:
    """The call that may cost most, with the nano-dollars it takes if it is short and at most.

    None where no price is known, and when the gate would refuse a call, which is for it to say.
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
