"""What the settings and the project's approvals say about a call: allow, ask or deny.

Rules see what the tool will see: resolved paths, parsed command lines and normalised addresses.
"""

import fnmatch
import glob
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from ecoshell.agent.executed_later import executed_later, may_be_executed_later
from ecoshell.agent.shell_line import parse_line
from ecoshell.messages import Call, Effect
from ecoshell.tools import Subject, Tool, sandbox_of, subjects_of
from ecoshell.tools.path_patterns import (
    GLOB,
    absolute_pattern,
    folded_patterns,
    is_within,
    locations,
    may_be_in,
)
from ecoshell.tools.protection import Protection, is_held
from ecoshell.tools.sandbox import Reach

Verdict = Literal["allow", "ask", "deny"]
HARMLESS: frozenset[Effect] = frozenset({"read"})
_MAX_OPTION_LETTERS = 8
"""Option letters in one word before a possible value."""
_ADDRESS = re.compile(
    r"(?:(https?)://)?([a-z0-9.-]+?)\.?(:\d+)?(/[^\s\\%]*|\?[^\s\\%]*)?", re.IGNORECASE
)
_FILE_ADDRESS = re.compile(r"^\s*file:(//(localhost)?(?=/))?", re.IGNORECASE)
_PATHS = frozenset({Subject.PATH, Subject.TREE})
EFFECT_SUBJECTS: Mapping[str, frozenset[Subject]] = {
    "read": _PATHS,
    "write": _PATHS,
    "execute": frozenset({Subject.COMMAND}),
    "network": frozenset({Subject.ADDRESS}),
}
"""The arguments that rules on effects apply to."""
_MAX_MATCHES = 1000
"""Maximum number of files that the wildcards of a command are expanded to."""
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a call, with its reason if a rule or the call gives one."""

    verdict: Verdict
    why: str = ""
    always_asks: bool = False
    """Whether the user decides each time, whatever was approved before."""
    by_rule: bool = False
    """Whether a rule asks; approvals given without that rule do not apply."""
    git_command: str = ""
    """The command of git, which is allowed only if the repository makes git run no other program."""
    instead: str = ""
    """What a model reads instead of the reason if its call was not approved."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns `tool`, `tool:pattern` or `effect:pattern`, with wildcards; the pattern applies to the arguments that
    the tool declares. An effect without a pattern is completed by `full_rule` before.

    Deny takes precedence over ask, and ask over allow. Uncertain calls match rules that deny or ask, and none that
    allow.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: bool = False
    """Whether all tools that write or execute are denied."""
    yes: bool = False
    """Whether everything else is allowed without asking, except writes to files that are executed later and writes
    that shrink a file."""
    force: bool = False
    """Whether writes that shrink a file need no special approval."""
    trusted: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """By model: whether it may write and run what the request does not name."""
    workspace: Path = Path()
    auto_accept: bool = False
    """Whether programs in the sandbox run without approval where no rule asks."""
    network: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    own: tuple[Path, ...] = ()
    """The folders with ecoshell's settings and rules."""

    def judge(self, call: Call, tool: Tool) -> Judgement:
        """Judge a call of the tool; may read the disk."""
        effects = tool.effects
        if self.read_only and effects & {"write", "execute"}:
            return Judgement("deny", "the shell is read-only")
        matcher = self._matcher(call, tool)
        if why := next((match for rule in self.deny if (match := matcher.match(rule))), ""):
            return Judgement("deny", f"a rule in the settings forbids it ({why})")
        if "write" in effects and (danger := self._danger(matcher)):
            why = f"{danger}. This needs approval each time, even with --yes."
            return Judgement("ask", why, always_asks=True)
        if self.yes:
            return Judgement("allow")
        if why := ", ".join(filter(None, map(matcher.match, self.ask))):
            return Judgement("ask", f"A rule in the settings asks ({why}).", by_rule=True)
        if effects <= HARMLESS:
            return Judgement("allow")
        rule = next(filter(matcher.is_covered, self.allow), None)
        if rule is None:
            is_free = self.auto_accept and self._is_confined(call, tool)
            return Judgement("allow" if is_free else "ask")
        return Judgement("allow", git_command=matcher.git_command() if ":" in rule else "")

    def reach(self, call: Call, tool: Tool) -> Reach:
        """What the settings let the program of a call reach."""
        matcher = _RuleMatcher(call, tool, self.workspace)

        def covers(patterns: Iterable[str]) -> bool:
            return any(matcher.is_covered(f"{call.name}:{pattern}") for pattern in patterns)

        if covers(self.outside):
            return "outside"
        return "network" if covers(self.network) else "inside"

    def denies_network(self) -> bool:
        """Whether a rule denies network access whatever the address."""
        return any(rule.startswith("network:") for rule in self.deny)

    def denies_files(self) -> bool:
        """Whether a rule denies reading or writing files, which only the sandbox holds for programs."""
        return any(rule.startswith(("read:", "write:")) for rule in self.deny)

    def protection(self, call: Call, tool: Tool) -> Protection | None:
        """The files that rules on reading and writing protect from a call that was approved; may read the disk.

        Rules that asked for the approval protect nothing. None if no rule protects anything.
        """
        patterns: dict[str, list[str]] = {"read": [], "write": []}
        matcher = self._matcher(call, tool)
        asking = () if self.yes else [rule for rule in self.ask if not matcher.match(rule)]
        for rule in (*self.deny, *asking):
            effect, _, pattern = rule.partition(":")
            if effect in patterns and pattern:
                patterns[effect].append(pattern)
        read, write = patterns.values()
        return Protection.of(self.workspace, read, write) if read or write else None

    def _matcher(self, call: Call, tool: Tool) -> "_RuleMatcher":
        return _RuleMatcher(call, tool, self.workspace, partial(self._holds, call, tool))

    def _is_confined(self, call: Call, tool: Tool) -> bool:
        """Whether the call runs only programs, in the sandbox and without network."""
        sandbox = sandbox_of(tool)
        return sandbox is not None and sandbox.holds and self.reach(call, tool) == "inside"

    def _holds(self, call: Call, tool: Tool, effect: str, pattern: str) -> bool:
        """Whether the sandbox holds a rule on an effect, whatever the call's programs do."""
        sandbox = sandbox_of(tool)
        if effect == "execute" or sandbox is None or not sandbox.holds:
            return False
        if effect == "network":
            return self.reach(call, tool) == "inside"
        return self.reach(call, tool) != "outside" and is_held(self.workspace, effect, pattern)

    def is_edit(self, call: Call, tool: Tool) -> bool:
        """Whether the call only writes files inside the workspace, by its declared paths; reads the disk."""
        if "write" not in tool.effects or tool.effects - {"read", "write"} or not subjects_of(tool):
            return False
        root = os.path.realpath(self.workspace)
        paths = [*_RuleMatcher(call, tool, self.workspace).written_paths()]
        return bool(paths) and all(path == root or path.startswith(f"{root}/") for path in paths)

    def _danger(self, matcher: "_RuleMatcher") -> str:
        """Why a write always needs approval; empty if it does not."""
        own = [os.path.realpath(folder) for folder in self.own]
        if reason := executed_later(matcher.written_paths(), own):
            return f"This file is executed later: {reason}"
        return "" if self.force else matcher.shrinkage()


def full_rule(rule: str, tools: Container[str]) -> str:
    """The rule with its pattern: the name of an effect alone means `effect:*`, unless a tool has that name."""
    return f"{rule}:*" if rule in EFFECT_SUBJECTS and rule not in tools else rule


@dataclass(frozen=True, slots=True)
class _RuleMatcher:
    """Matches a call with rules; examines an argument only if a rule concerns it."""

    call: Call
    tool: Tool
    workspace: Path
    holds: Callable[[str, str], bool] = lambda effect, pattern: False
    """Whether the sandbox holds a rule with this effect and pattern."""

    def match(self, rule: str) -> str:
        """The rule, with the reason of an uncertain match, if the call does or may do what it names; else empty."""
        name, colon, pattern = rule.partition(":")
        if colon and name in EFFECT_SUBJECTS:
            return self._match_effect(rule, name, pattern) if name in self.tool.effects else ""
        if not fnmatch.fnmatchcase(self.call.name, name):
            return ""
        if not colon:
            return rule
        if not subjects_of(self.tool):
            return f"{rule}; the arguments do not show what the call does"
        for subject, text in self._subjects():
            if text is None:
                return f"{rule}; an argument is not a text"
            if subject is Subject.COMMAND:
                line = parse_line(text)
                if line.may_run(pattern):
                    return f"{rule}; the command is uncertain: {line.doubt}" if line.doubt else rule
            elif subject in _PATHS:
                paths = locations(self.workspace, text)
                if paths is None or may_be_in(self.workspace, pattern, paths):
                    return rule
            elif _may_be_address(text, pattern):
                return rule
        return ""

    def _match_effect(self, rule: str, effect: str, pattern: str) -> str:
        """The same for a rule that names an effect of the tool."""
        subjects = subjects_of(self.tool)
        if not subjects or (effect == "execute" and Subject.COMMAND not in subjects.values()):
            if "execute" in self.tool.effects:
                is_held = self.holds(effect, pattern)
                return "" if is_held else f"{rule}; the arguments do not show what the call does"
            texts = _texts(self.call.arguments)
            return rule if any(self._is_named(effect, text, pattern) for text in texts) else ""
        for subject, text in self._subjects():
            if text is None:
                return f"{rule}; an argument is not a text"
            if subject is Subject.COMMAND:
                if (why := self._match_command(effect, text, pattern)) is not None:
                    return f"{rule}; the command is uncertain: {why}" if why else rule
            elif subject in EFFECT_SUBJECTS[effect] and self._is_named(
                effect, text, pattern, subject
            ):
                return rule
        return ""

    def _is_named(
        self, effect: str, text: str, pattern: str, subject: Subject = Subject.PATH
    ) -> bool:
        """Whether a text is a path or an address that the pattern of a rule on this effect matches."""
        if effect == "network":
            address = _address(text)
            if address is None or "/" in pattern:
                return _may_be_address(text, pattern) and (address is not None or "://" in text)
            return fnmatch.fnmatchcase(urlsplit(address).hostname or "", pattern.casefold())
        paths = locations(self.workspace, unquote(_FILE_ADDRESS.sub("", text, count=1)))
        if paths is None:
            return False
        if subject is Subject.TREE:  # the tool omits what lies below
            patterns = folded_patterns(self.workspace, pattern)
            return any(is_within(patterns, path) for path in paths)
        return may_be_in(self.workspace, pattern, paths)

    def _match_command(self, effect: str, text: str, pattern: str) -> str | None:
        """Why a command line has, or may have, this effect on what the pattern names; None if it does not.

        The sandbox confines what the line does not show.
        """
        line = parse_line(text)
        if effect == "execute":
            return line.doubt if line.may_run(pattern) else None
        is_held = self.holds(effect, pattern)
        if not is_held and (doubt := line.doubt or line.hidden_use()):
            return doubt
        if effect == "network" and not is_held and not pattern.strip("*"):
            return "it may use the network"
        names = set(_possible_paths(line.commands))
        if not is_held:
            globs = [name for name in names if GLOB.search(name)]
            matches = (glob.iglob(name, root_dir=self.workspace) for name in globs)  # noqa: PTH207 - may be absolute
            names.update(itertools.islice(itertools.chain.from_iterable(matches), _MAX_MATCHES))
        subject = Subject.TREE if is_held else Subject.PATH
        return "" if any(self._is_named(effect, name, pattern, subject) for name in names) else None

    def is_covered(self, rule: str) -> bool:
        """Whether a rule that allows covers everything the call does."""
        name, colon, pattern = rule.partition(":")
        if colon and name in EFFECT_SUBJECTS:
            return self._is_covered_effect(name, pattern)
        if not fnmatch.fnmatchcase(self.call.name, name):
            return False
        if not colon:
            return True
        has_path = not _PATHS.isdisjoint(subjects_of(self.tool).values())
        if list(self.call.arguments.values()) == [pattern] and not has_path:
            return True  # literally
        subjects = list(self._subjects())
        return bool(subjects) and all(
            self._covers(subject, text, pattern) for subject, text in subjects
        )

    def _is_covered_effect(self, effect: str, pattern: str) -> bool:
        """Whether a rule that allows an effect covers everything the call does."""
        is_all = all(each == effect for each in self.tool.effects - HARMLESS)
        if effect not in self.tool.effects or not (is_all or effect == "execute"):
            return False
        kinds, subjects = EFFECT_SUBJECTS[effect], list(self._subjects())
        if not subjects or any(subject not in kinds for subject, _ in subjects):
            return False
        if effect == "network" and "://" not in pattern:
            addresses = [_address(text or "") or "" for _, text in subjects]
            hosts = [urlsplit(address).hostname or "" for address in addresses]
            return all(host and fnmatch.fnmatchcase(host, pattern.casefold()) for host in hosts)
        return all(self._covers(subject, text, pattern) for subject, text in subjects)

    def _covers(self, subject: Subject, text: str | None, pattern: str) -> bool:
        if text is None:
            return False
        if subject is Subject.COMMAND:
            return self._covers_command(text, pattern)
        if subject in _PATHS:
            paths = locations(self.workspace, text)
            pattern = absolute_pattern(os.path.realpath(self.workspace), pattern)
            return paths is not None and all(fnmatch.fnmatchcase(path, pattern) for path in paths)
        address = _address(text)
        return (
            address is not None
            and ".." not in address
            and fnmatch.fnmatchcase(address, _lower_host(pattern))
        )

    def _covers_command(self, text: str, pattern: str) -> bool:
        """Whether the pattern covers a command line; wildcards do not cover files that are executed later."""
        line = parse_line(text)
        if not line.is_only(pattern):
            return False
        words = _option_values(line.commands[0][1:])
        names = {name for word in words for name in re.split(r"[=:,]", word)}
        names.discard("HEAD")  # usually a commit
        return not any(may_be_executed_later(self.workspace, name) for name in names)

    def git_command(self) -> str:
        """The command of git that the call runs; "git" if uncertain, empty if it runs none."""
        subjects = self._subjects()
        texts = [text for subject, text in subjects if subject is Subject.COMMAND and text]
        commands = [words for text in texts for words in parse_line(text).commands]
        match [words for words in commands if "git" in map(posixpath.basename, words)]:
            case []:
                return ""
            case [("git", command, *_)]:
                return command
            case _:
                return "git"

    def written_paths(self) -> Iterator[str]:
        """The absolute paths that the call may write: those that the tool declares, otherwise any of its texts.

        Excludes what a command or program writes.
        """
        declared = subjects_of(self.tool)
        if not declared and "execute" in self.tool.effects:
            return
        subjects = self._subjects()
        paths = [text for subject, text in subjects if subject in _PATHS and text is not None]
        for text in () if declared else _texts(self.call.arguments):
            plain = unquote(_FILE_ADDRESS.sub("", text, count=1))  # an external tool may decode it
            plain = f"{Path.home()}{plain[1:]}" if plain.startswith("~/") else plain
            paths += [text] if plain == text else [text, plain]
        for path in paths:
            yield from locations(self.workspace, path) or ()

    def shrinkage(self) -> str:
        """By how much the call would shrink a file whose new text it contains; empty if it would not."""
        subjects = subjects_of(self.tool)
        names = [name for name in subjects if subjects[name] is Subject.CONTENT]
        content = self.call.arguments.get(names[0]) if names else None
        if not isinstance(content, str):
            return ""
        new = len(content.encode(errors="replace"))
        for path in self.written_paths():
            with suppress(OSError):
                present = posixpath.getsize(path) if posixpath.isfile(path) else 0
                if present > new:
                    return f"This would shrink the file from {present:,} to {new:,} bytes"
        return ""

    def _subjects(self) -> Iterator[tuple[Subject, str | None]]:
        """The declared arguments that patterns apply to, with their defaults; None for an unknown value.

        An empty list is unknown, because tools take it to mean everything.
        """
        properties = cast("Mapping[str, Any]", self.tool.schema.parameters.get("properties") or {})
        for name, subject in subjects_of(self.tool).items():
            if subject is Subject.CONTENT:
                continue
            value, schema = self.call.arguments.get(name), properties.get(name)
            if value is None and isinstance(schema, Mapping):
                value = cast("Mapping[str, Any]", schema).get("default")
            if value is not None:
                values = cast("list[object]", value) if isinstance(value, list) else [value]
                for item in values or [None]:
                    yield subject, item if isinstance(item, str) else None


def _texts(arguments: Mapping[str, object]) -> Iterator[str]:
    """All texts in the arguments at any depth, and all keys below the arguments' own."""
    pending: list[object] = [*arguments.values()]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            table = cast("Mapping[str, object]", item)
            pending += [*table.keys(), *table.values()]
        elif isinstance(item, list):
            pending += cast("list[object]", item)


def _may_be_address(text: str, pattern: str) -> bool:
    """Whether an address matches a pattern, also if it is ambiguous."""
    address = _address(text)
    if address is None or fnmatch.fnmatchcase(address.casefold(), _lower_host(pattern).casefold()):
        return True
    return fnmatch.fnmatchcase(text, pattern)


def _address(text: str) -> str | None:
    """The normal form of an address; None if it is ambiguous."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not text.isascii():
        return None
    scheme, host = (match[1] or "https").lower(), match[2].lower()
    port, path = match[3] or "", match[4] or "/"
    if port == _PORTS[scheme]:
        port = ""
    return f"{scheme}://{host}{port}{path if path.startswith('/') else f'/{path}'}"


def _lower_host(pattern: str) -> str:
    """The pattern of an address with scheme and host in lower case."""
    scheme, sign, location = pattern.partition("://")
    host, slash, path = location.partition("/")
    return f"{scheme.lower()}{sign}{host.lower()}{slash}{path}" if sign else pattern


def _possible_paths(commands: Iterable[Sequence[str]]) -> Iterator[str]:
    """What may be paths in the words of commands, also relative to a folder that `cd` enters."""
    folder = ""
    for command in commands:
        words = _option_values(command)
        names = {name for word in words for name in (word, *re.split(r"[=:,@]", word)) if name}
        for name in map(posixpath.expanduser, names):
            yield name
            yield posixpath.join(folder, name)
        if command[0] == "cd":
            folder = posixpath.join(folder, posixpath.expanduser((*command, "~")[1]))


def _option_values(words: Iterable[str]) -> Iterator[str]:
    """The words, and everything in them that may be the value of a short option: `FILE` in `-oFILE`."""
    for word in words:
        yield word
        if word.startswith("-"):
            yield from (word[start:] for start in range(2, min(_MAX_OPTION_LETTERS, len(word))))
