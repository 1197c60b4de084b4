"""Who may do what: rules from the settings, what small models may guess, what was allowed before, and the person.

What a model may write and run that is too small to be trusted with it is what the request plainly names. That goes by
what a tool does and by where the words of a call stand, never by how requests are phrased.
"""

import asyncio
import functools
import json
import posixpath
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ecoshell.agent.rules import HARMLESS, Judgement, Rules
from ecoshell.agent.user_interface import Approval, NonInteractive, UserInterface
from ecoshell.events import ApprovalGiven, ApprovalWanted, Emit, Notice
from ecoshell.messages import Call, Effect, ToolDocument
from ecoshell.models.base import Traits
from ecoshell.secrecy import masked
from ecoshell.strategies.base import Step
from ecoshell.tools.base import LASTING, Previewing, Subject, Tool, subjects_of
from ecoshell.tools.project import why_not_plain
from ecoshell.tools.running import in_thread
from ecoshell.untrusted import visible_line

TRUSTED_PARAMETERS = 3_000_000_000
"""A model with fewer weights is not trusted with what the request does not name; one of unknown size is."""
_LEADING_VERBS = re.compile(r"\w+(?:, \w+)*(?:,? or \w+)?")
_DO_INSTEAD = "Answer the request in your own words, or use a tool that only reads."
"""What a weak model is told in the place of a reason, which it would give as its answer."""
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
    small: bool
    """Whether the model is of the smallest, which word nothing: all of a call stands in the question or in results."""

    def strange(self, call: Call, tool: Tool, workspace: Path) -> str:
        """What of a call is not in the request; empty where nothing is, and for a tool that leaves nothing behind.

        Looks at the disk: only a file that is there must be named, or have been read.
        """
        if not tool.effects & LASTING:
            return ""
        wanted = verbs([tool.document] if self.small else self.alike)
        if wanted.isdisjoint(re.findall(r"\w+", self.asked.lower())):
            return f"the request does not say so ({' or '.join(sorted(verbs([tool.document])))})"
        done = [step for step in self.steps if step.observation.ok]
        if self.small:
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
        return ApprovalWanted(
            self.call.id,
            self.call.name,
            dict(self.call.arguments),
            tuple(sorted(self.tool.effects)),
            _reason(self, judged),
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
        self._rules = rules
        self._person = person
        self._remember = remember
        self._granted = set(granted)
        self._asking = asyncio.Lock()
        """Branches that run side by side wait their turn to ask the person."""

    def follow(self, rules: Rules) -> None:
        """Go by these rules from the next call on; what was granted stays granted."""
        self._rules = rules

    @property
    def read_only(self) -> bool:
        """Whether nothing that writes or executes may run."""
        return self._rules.read_only

    def trusts(self, traits: Traits) -> bool:
        """Whether a model may write and run what the request does not name."""
        return is_trusted(traits, self._rules.trusted.get(traits.name))

    def allows(self, call: Call, tool: Tool) -> bool:
        """Whether the rules allow a call unasked; may look at the disk."""
        return self._rules.judge(call, tool).verdict == "allow"

    def lets_program(self, traits: Traits) -> bool:
        """Whether a program of this model may come to run: a person can be asked, or nobody need be."""
        somebody = type(self._person) is not NonInteractive  # one that decides is derived of it
        return not self.read_only and (somebody or (self._rules.yes and self.trusts(traits)))

    async def rule(self, request: ApprovalRequest, emit: Emit) -> ApprovalDecision:
        """Whether the call may run, by the rules or by the person's word.

        In a search, what cannot be undone by going back is asked about each time, but for `--yes`. One call is asked
        about at a time; the next one goes by what was said of those before it.
        """
        judged = await self._judged(request)
        ruling = self._unasked(request, judged, emit)
        if ruling is not None:
            return ruling
        async with self._asking:
            judged = await self._judged(request)  # what holds by now: there may have been a long wait
            ruling = self._unasked(request, judged, emit)
            if ruling is not None:
                return ruling
            call = request.call
            asked = replace(request, call=replace(call, id=call.id or secrets.token_hex(4)))
            return await self._settle(asked, judged, *await self._ask(asked, judged, emit), emit)

    async def _judged(self, request: ApprovalRequest) -> Judgement:
        """What the rules say, and what becomes of a guess; what a repository has run for a command is looked for."""
        rules, call, tool = self._rules, request.call, request.tool
        judged = await asyncio.to_thread(rules.judge, call, tool)
        if judged.verdict != "deny" and request.guess is not None:
            strange = await asyncio.to_thread(request.guess.strange, call, tool, rules.workspace)
            if strange and request.guess.small:
                return Judgement("deny", f"{strange}, and a model this small does no more than it was plainly told")
            if strange:  # of a larger model's guess a person decides
                why = f"The model is too small to be trusted with it: {strange}."
                return Judgement("ask", why, True, instead=_DO_INSTEAD)
        if judged.verdict == "allow" and judged.git_command:
            why = await why_not_plain(rules.workspace, judged.git_command)
            return Judgement("ask", f"A rule allows it, but {why}.") if why else judged
        return judged

    def _unasked(self, request: ApprovalRequest, judged: Judgement, emit: Emit) -> ApprovalDecision | None:
        """What the rules and what was granted say of the call; None where the person has to be asked."""
        call = request.call
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule"))
            return _forbidden(call, judged)
        if judged.always_asks:
            return None
        allowed = judged.verdict == "allow" or grant(call, request.tool.effects, judged) in self._granted
        return ApprovalDecision(call) if allowed and (self._rules.yes or not request.outlasts) else None

    async def _ask(self, request: ApprovalRequest, judged: Judgement, emit: Emit) -> tuple[Approval, Call]:
        """The person's word, and the call it is about; arguments the tool cannot take are asked for again."""
        fault = ""
        while True:
            wanted = masked(await in_thread(functools.partial(request.wanted, judged, fault)))
            emit(wanted)
            approval = await self._person.approve(wanted)
            if approval.decision == "no" or approval.arguments is None:
                return approval, request.call
            request = replace(request, call=replace(request.call, arguments=dict(approval.arguments)))
            from ecoshell.models.protocol import call_fault

            fault = await asyncio.to_thread(call_fault, request.call, [request.document])
            if not fault:
                return approval, request.call

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

    async def _settle(
        self, request: ApprovalRequest, judged: Judgement, approval: Approval, call: Call, emit: Emit
    ) -> ApprovalDecision:
        """Carry out the person's word; the rules apply to a changed call as to any other."""
        edited = call.arguments if dict(call.arguments) != dict(request.call.arguments) else None
        if approval.decision == "no":
            by, instead = "nobody" if isinstance(self._person, NonInteractive) else "person", approval.instead.strip()
            emit(ApprovalGiven(call.id, "no", by, instead=instead))
            if instead:
                return ApprovalDecision(
                    call, f"{call.name} was not run: the person said no. Do this instead: {instead}"
                )
            if judged.instead and by == "nobody":  # who was asked has read why; the model does not hear it
                emit(Notice(f"{visible_line(call.name)} was not run. {judged.why}"))
            told = judged.instead or judged.why
            return ApprovalDecision(call, f"{call.name} was not run: it was not approved. {told}".rstrip())
        if edited is not None:
            judged = await asyncio.to_thread(self._rules.judge, call, request.tool)
        if judged.verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", edited))
            return _forbidden(call, judged)
        emit(ApprovalGiven(call.id, approval.decision, "person", edited))
        if judged.always_asks:
            return ApprovalDecision(call)
        granted = grant(call, request.tool.effects, judged)
        if approval.decision in ("session", "project"):
            self._granted.add(granted)
        if approval.decision == "project":
            await asyncio.to_thread(self._remember, granted)
        return ApprovalDecision(call)


def _forbidden(call: Call, judged: Judgement) -> ApprovalDecision:
    return ApprovalDecision(call, f"{call.name} was not run: {judged.why}.")


def grant(call: Call, effects: frozenset[Effect], judged: Judgement) -> str:
    """What "always" stands for, taken to the letter: this very call for what executes, the tool for the rest.

    Where a rule asked, it is the tool under that rule.
    """
    if "execute" not in effects:
        return f"{call.name} ({judged.why})" if judged.by_rule else call.name
    values = list(call.arguments.values())
    alone = values[0] if len(values) == 1 and isinstance(values[0], str) else None
    return f"{call.name}:{json.dumps(dict(call.arguments), sort_keys=True) if alone is None else alone}"


def _reason(request: ApprovalRequest, judged: Judgement) -> str:
    effects = request.tool.effects
    would = " and ".join(_EFFECT_WORDS[effect] for effect in sorted(effects - HARMLESS)) or "read"
    under = " that this asks about" if judged.by_rule else ""
    always = "this very call" if "execute" in effects else f"every {request.call.name}{under}"
    said = f"It would {would}.{f' {judged.why}' if judged.why else ''}"
    if judged.always_asks:
        return f"{said} “Always” allows no other."
    if request.outlasts:
        stays = "Going back to try another way does not undo it, so a search asks each time"
        return f"{said} {stays}. “Always” allows {always} in turns that do not search."
    return f"{said} “Always” allows {always}."
