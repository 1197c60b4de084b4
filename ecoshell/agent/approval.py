"""Who may do what: rules from the settings, decisions of this session and project, and the person for the rest."""

import asyncio
import fnmatch
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ecoshell.agent.person import Approval, Nobody, Person
from ecoshell.events import ApprovalGiven, ApprovalWanted, Emit
from ecoshell.messages import Call, Effect, ToolDocument
from ecoshell.models.textcalls import call_fault
from ecoshell.tools.base import LASTING, Previewing, Tool

Verdict = Literal["allow", "ask", "deny"]
_HARMLESS: frozenset[Effect] = frozenset({"read"})
_CHAINING = frozenset(";&|`$<>(){}\n\r\\")
"""Signs that let one shell command carry another: a wildcard never approves them."""
_EFFECT_WORDS: Mapping[Effect, str] = {
    "read": "read files",
    "write": "change files",
    "execute": "run a program",
    "network": "reach the network",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns `tool` or `tool:argument`, with wildcards; the argument is the call's first text.

    Deny wins, then ask, then allow.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: bool = False
    """Nothing that writes or executes runs, whatever else is allowed."""
    yes: bool = False
    """What no rule denies is allowed."""

    def verdict(self, call: Call, effects: frozenset[Effect]) -> Verdict:
        """What the rules say of this call."""
        if (self.read_only and effects & {"write", "execute"}) or _any(self.deny, call, careful=False):
            return "deny"
        if self.yes or (effects <= _HARMLESS and not _any(self.ask, call, careful=False)):
            return "allow"
        if _any(self.ask, call, careful=False):
            return "ask"
        return "allow" if _any(self.allow, call, careful=True) else "ask"


@dataclass(frozen=True, slots=True)
class Petition:
    """A call that wants to run, and what there is to know of it."""

    call: Call
    tool: Tool
    document: ToolDocument
    """As the catalog names the tool."""
    rationale: str = ""
    """Why the agent makes the call."""
    searching: bool = False
    """Whether the agent may go back from here and try another way."""

    @property
    def effects(self) -> frozenset[Effect]:
        return self.tool.effects

    @property
    def outlasts(self) -> bool:
        """Whether a search that goes back leaves behind what the call does."""
        return self.searching and bool(self.effects & LASTING)

    def changes(self) -> str:
        """What the call would change in files, where the tool can tell; may block."""
        if not isinstance(self.tool, Previewing):
            return ""
        try:
            return self.tool.preview(self.call.arguments)
        except Exception:  # noqa: BLE001 - a tool may be anybody's code; a call can be judged without a preview
            return ""

    def wanted(self, fault: str = "") -> ApprovalWanted:
        """The question to a person; may block."""
        return ApprovalWanted(
            self.call.id,
            self.call.name,
            dict(self.call.arguments),
            tuple(sorted(self.effects)),
            _reason(self),
            rationale=self.rationale,
            price_nano=self.tool.price_nano,
            changes=self.changes(),
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of a petition: the call that may run, which a person may have changed, or why none may."""

    call: Call
    refusal: str = ""
    """In words for the model; empty when the call may run."""


class Approvals:
    """Decides on calls; remembers what is allowed for the session, and hands on what is allowed for the project."""

    def __init__(
        self, rules: Rules, person: Callable[[], Person], *, granted: Iterable[str], remember: Callable[[str], None]
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

    async def rule(self, petition: Petition, emit: Emit) -> Ruling:
        """Whether the call may run, by the rules or by the person's word.

        In a search, what cannot be undone by going back is asked about each time, but for `--yes`. One call is asked
        about at a time; the next one goes by what was said of those before it.
        """
        ruling = self._unasked(petition, emit)
        if ruling is not None:
            return ruling
        async with self._asking:
            ruling = self._unasked(petition, emit)
            if ruling is not None:
                return ruling
            call = petition.call
            asked = replace(petition, call=replace(call, id=call.id or secrets.token_hex(4)))
            return await self._settle(asked, *await self._ask(asked, emit), emit)

    def _unasked(self, petition: Petition, emit: Emit) -> Ruling | None:
        """What the rules and what was granted say of the call; None where the person has to be asked."""
        call = petition.call
        verdict = self._rules.verdict(call, petition.effects)
        if verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule"))
            return self._forbidden(call)
        allowed = verdict == "allow" or grant(call, petition.effects) in self._granted
        return Ruling(call) if allowed and (self._rules.yes or not petition.outlasts) else None

    async def _ask(self, petition: Petition, emit: Emit) -> tuple[Approval, Call]:
        """The person's word, and the call it is about; arguments the tool cannot take are asked for again."""
        fault = ""
        while True:
            wanted = await asyncio.to_thread(petition.wanted, fault)
            emit(wanted)
            approval = await self._person().approve(wanted)
            if approval.decision == "no" or approval.arguments is None:
                return approval, petition.call
            petition = replace(petition, call=replace(petition.call, arguments=dict(approval.arguments)))
            fault = await asyncio.to_thread(call_fault, petition.call, [petition.document])
            if not fault:
                return approval, petition.call

    async def _settle(self, petition: Petition, approval: Approval, call: Call, emit: Emit) -> Ruling:
        """Carry out the person's word; the rules apply to a changed call as to any other."""
        edited = call.arguments if dict(call.arguments) != dict(petition.call.arguments) else None
        if approval.decision == "no":
            emit(ApprovalGiven(call.id, "no", "nobody" if isinstance(self._person(), Nobody) else "person"))
            return Ruling(call, f"{call.name} was not run: it was not approved.")
        if self._rules.verdict(call, petition.effects) == "deny":
            emit(ApprovalGiven(call.id, "no", "rule", edited))
            return self._forbidden(call)
        emit(ApprovalGiven(call.id, approval.decision, "person", edited))
        if approval.decision in ("session", "project"):
            self._granted.add(grant(call, petition.effects))
        if approval.decision == "project":
            await asyncio.to_thread(self._remember, grant(call, petition.effects))
        return Ruling(call)

    def _forbidden(self, call: Call) -> Ruling:
        why = "the shell is read-only" if self._rules.read_only else "a rule in the settings forbids it"
        return Ruling(call, f"{call.name} was not run: {why}.")


def grant(call: Call, effects: frozenset[Effect]) -> str:
    """What "always" stands for, taken to the letter: this very command for what executes, the tool for the rest."""
    return f"{call.name}:{_main_argument(call.arguments)}" if "execute" in effects else call.name


def _reason(petition: Petition) -> str:
    effects = petition.effects
    would = " and ".join(_EFFECT_WORDS[effect] for effect in sorted(effects - _HARMLESS)) or "read"
    always = "this very call" if "execute" in effects else f"every {petition.call.name}"
    if petition.outlasts:
        stays = "Going back to try another way does not undo it, so a search asks each time"
        return f"It would {would}. {stays}. “Always” allows {always} in turns that do not search."
    return f"It would {would}. “Always” allows {always}."


def _any(patterns: tuple[str, ...], call: Call, *, careful: bool) -> bool:
    return any(_matches(pattern, call, careful=careful) for pattern in patterns)


def _matches(pattern: str, call: Call, *, careful: bool) -> bool:
    """Whether a rule speaks of this call; a careful match lets no wildcard stand for a chained command."""
    name, colon, wanted = pattern.partition(":")
    if not fnmatch.fnmatchcase(call.name, name):
        return False
    if not colon:
        return True
    given = _main_argument(call.arguments)
    if given == wanted:
        return True
    if careful and _CHAINING & set(given):
        return False
    return fnmatch.fnmatchcase(given, wanted)


def _main_argument(arguments: Mapping[str, Any]) -> str:
    return next((value for value in arguments.values() if isinstance(value, str)), "")
