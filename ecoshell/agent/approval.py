"""Who may do what: rules from the settings, decisions of this session and project, and the person for the rest."""

import fnmatch
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ecoshell.agent.person import Person
from ecoshell.events import ApprovalGiven, ApprovalWanted, Emit
from ecoshell.messages import Call, Effect

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

    async def refusal(self, call: Call, effects: frozenset[Effect], emit: Emit) -> str:
        """Why the call may not run, in words for the model; empty when it may."""
        verdict = self._rules.verdict(call, effects)
        if verdict == "allow" or (verdict == "ask" and grant(call, effects) in self._granted):
            return ""
        if verdict == "deny":
            emit(ApprovalGiven(call.id, "no", "rule"))
            why = "the shell is read-only" if self._rules.read_only else "a rule in the settings forbids it"
            return f"{call.name} was not run: {why}."
        wanted = ApprovalWanted(
            call.id or secrets.token_hex(4),
            call.name,
            dict(call.arguments),
            tuple(sorted(effects)),
            _reason(call, effects),
        )
        emit(wanted)
        decision = (await self._person().approve(wanted)).decision
        emit(ApprovalGiven(wanted.id, decision, "person"))
        if decision == "no":
            return f"{call.name} was not run: it was not approved."
        if decision in ("session", "project"):
            self._granted.add(grant(call, effects))
        if decision == "project":
            self._remember(grant(call, effects))
        return ""


def grant(call: Call, effects: frozenset[Effect]) -> str:
    """What "always" stands for, taken to the letter: this very command for what executes, the tool for the rest."""
    return f"{call.name}:{_main_argument(call.arguments)}" if "execute" in effects else call.name


def _reason(call: Call, effects: frozenset[Effect]) -> str:
    would = " and ".join(_EFFECT_WORDS[effect] for effect in sorted(effects - _HARMLESS)) or "read"
    always = "this very call" if "execute" in effects else f"every {call.name}"
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
