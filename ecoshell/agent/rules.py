"""What the settings, and what a person allowed in a project, say of a call.

That goes by what the tool will see: resolved paths, parsed commands, plain addresses. What was allowed in a project is
kept in the person's own data folder, not in the project: or a repository could come with its own approvals.
"""

import fnmatch
import functools
import glob
import hashlib
import itertools
import json
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote

from ecoshell.errors import StoreError
from ecoshell.messages import Call, Effect
from ecoshell.paths import is_special, make_private, remedy, replacement
from ecoshell.tools import Subject, Tool, subjects_of

_LONGEST_LINE = 20_000
"""Characters of a line that is looked at."""
_PIECE = re.compile(
    r"""(?P<blank>[ \t]+)
    | (?P<end>&&|\|\||[;&|\n])
    | (?P<descriptor>\d*[<>]&(?:\d+|-)(?=[\s;&|<>]|$))
    | (?P<redirection>\d*(?:>>|>\||<>|[<>](?![<&])))
    | (?P<word>(?:'[^']*'|"[^"$`\\]*"|(?!\#)[^\s'"\\`$;&|<>(){}!\x00-\x20\x7f]
        (?:[^\s'"\\`$;&|<>(){}!\x00-\x20\x7f])*)+)""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_GLOB = re.compile(r"[*?\[]")
_LOOKED_FOR, _MOST_FOUND = 2, 1000
"""Parts of a path whose wildcards are looked for on the disk, and paths that are looked at."""
_LONGEST_OPTIONS = 8
"""Letters of options in one word, behind which a value may stand."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_RESERVED = frozenset([
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "function",
    "select", "coproc", "time",
])  # fmt: skip
_RUNNERS = frozenset([
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "busybox", "toybox",
    "eval", "exec", "source", ".", "command", "builtin", "env", "xargs", "parallel", "sudo", "doas", "su",
    "runuser", "nohup", "nice", "ionice", "chrt", "taskset", "timeout", "setsid", "stdbuf", "unbuffer",
    "script", "expect", "watch", "entr", "flock", "chroot", "unshare", "nsenter", "strace", "ltrace", "gdb",
    "ssh", "alias", "unalias", "trap", "hash", "enable", "vi", "vim", "nvim", "view", "ex", "ed", "emacs", "at",
    "batch", "crontab", "systemd-run", "start-stop-daemon", "setarch", "prlimit", "run-parts", "socat", "tmux",
    "screen", "let", "declare", "typeset", "local", "read", "mapfile", "readarray", "bind", "complete", "compgen",
    "unset", "getopts",
])  # fmt: skip
"""Programs that run what their arguments say."""
_LOADERS = re.compile(r"ld(-\w+)*\.so(\.\d+)*|ld-[\w.-]+|i386|linux(32|64)|x86_64")
_INTERPRETERS = re.compile(
    r"(pythonw?|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|rscript|osascript)[\d.]*"
)
_AWK = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_AWK_RUNS = re.compile(r"system|[|@]|getline|\\|-f|--|/dev/|print.*>")
_SED_PLAIN = re.compile(r"(\d+|\$)?(,(\d+|\$))?[pdq]|s([/|#,])(?:(?!\4)[^\\\n])*\4(?:(?!\4)[^\\\n])*\4[gpiI\d]*")
_SED_OPTIONS = re.compile("-[nErisu]+")
_FIND_RUNS = ("-exec", "-ok", "-delete", "-fprint", "-fls")
_GIT_RUNS = ("--ou", "--ext", "--op", "--up", "--rece", "--exec", "-O")
"""Options of git's commands, also cut short, that write files or name programs."""
_TAKE_TEXT = frozenset([
    "[", "test", "echo", "printf", "cat", "ls", "grep", "egrep", "fgrep", "head", "tail", "wc", "cut", "true",
    "false", "pwd", "cd", "mkdir", "touch", "stat", "basename", "dirname", "sleep",
])  # fmt: skip
"""Programs to which a word that names a program is only a text."""
_OPERATORS = frozenset({"|", "||", "&&", "&", ";"})
_SEPARATING = re.compile(r"[^\w./*?\[\]~+-]+")
_EVALUATED = re.compile(r"\[.*(\$\(|`)", re.DOTALL)
"""An index in which bash runs a command, also where it is quoted: `printf -v 'a[$(…)]'`."""
Verdict = Literal["allow", "ask", "deny"]
HARMLESS: frozenset[Effect] = frozenset({"read"})
_ADDRESS = re.compile(r"(?:(https?)://)?([a-z0-9.-]+?)\.?(:\d+)?(/[^\s\\%]*|\?[^\s\\%]*)?", re.IGNORECASE)
_FILE_ADDRESS = re.compile(r"^\s*file:(//(localhost)?(?=/))?", re.IGNORECASE)
_LONGEST_PATH = 4096
"""Characters of a path; no system takes more."""
_PORTS = {"http": ":80", "https": ":443"}
_STARTS = "bashrc bash_profile bash_login bash_logout bash_aliases profile zshrc zshenv zprofile zlogin zlogout"
_SHELLS = f"{_STARTS} kshrc mkshrc shrc cshrc tcshrc login logout inputrc xinitrc xprofile xsession xsessionrc"
_KINDS = {
    "git runs what it names": "*/.git */.git/* */.gitconfig */.config/git/* */.githooks/* */.husky/* */lefthook.yml "
    "*/.pre-commit-config.yaml */head",  # which any folder needs to be a repository without a working tree
    "direnv runs it": "*/.envrc */.direnvrc */.config/direnv/*",
    "an editor runs what it names": "*/.vscode/* */*.code-workspace */.idea/* */.devcontainer/* */.devcontainer.json "
    "*/.vimrc */.exrc */.nvimrc */.nvim.lua */.vim/* */.config/nvim/* */.emacs */.emacs.d/* */.dir-locals.el "
    "*/.mcp.json */.cursor/*",
    "a shell runs it when it starts": f"{' '.join(f'*/.{name}' for name in _SHELLS.split())} */.config/fish/* */.ssh/* "
    "*/.config/autostart/* */.config/systemd/* */.config/environment.d/* */library/launchagents/* */.bashrc.d/* "
    "*/.zshrc.d/*",
    "programs are taken from there": "*/.venv/* */venv/bin/* */node_modules/.bin/* */sitecustomize.py "
    "*/usercustomize.py */*.pth",
}
_RUN_LATER = {why: patterns.split() for why, patterns in _KINDS.items()}
"""Files that something runs later without being asked, with why: what writes them is asked about each time."""


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line for the shell: the words of each simple command, without quotes.

    Nothing is guessed. What the shell would expand, nest or hand to another program leaves a doubt, and a doubt counts
    against the line: rules that deny or ask hold for it, rules that allow do not. This is no sandbox: a program may run
    any other. `shlex` does not serve, as it does not tell a quoted sign from one that the shell acts on.
    """

    text: str
    commands: tuple[tuple[str, ...], ...]
    doubt: str = ""
    """What keeps it from being told what the line runs; empty when that is plain."""
    redirects: bool = False
    globs: frozenset[str] = frozenset()
    """Words that the shell puts file names in the place of."""

    def may_run(self, pattern: str) -> bool:
        """Whether the line does, or may do, what a rule's pattern names: what rules that deny or ask go by.

        The words of the pattern have to come in this order in one command, with or without others between them; a
        program counts by any path to it, and where one is named to another.
        """
        if self.doubt or fnmatch.fnmatchcase(self.text, pattern):
            return True
        words = (word.strip("'\"") for word in pattern.casefold().split())
        wanted = [word for word in words if word not in _OPERATORS]
        while wanted and wanted[-1] == "*":
            wanted.pop()
        if not wanted:
            return True
        wanted[0] = _base(wanted[0])
        chained = not _OPERATORS.isdisjoint(pattern.split())
        for command in [sum(self.commands, ())] if chained else self.commands:
            words, sought = [word.casefold() for word in command], wanted
            if _base(words[0]) in _TAKE_TEXT and not self.redirects:
                if not fnmatch.fnmatchcase(_base(words[0]), wanted[0]):
                    continue
                words, sought = words[1:], wanted[1:]
            tokens = iter([token for word in words for token in (word, *_inner(word))])
            if all(any(self._may_be(token, word) for token in tokens) for word in sought):
                return True
        return False

    def is_only(self, pattern: str) -> bool:
        """Whether the line is one plain command that the pattern covers, word by word: what rules that allow go by."""
        if self.doubt or self.redirects or len(self.commands) != 1:
            return False
        words = (word.strip("'\"") for word in pattern.split())
        return fnmatch.fnmatchcase("\0".join(self.commands[0]), "\0".join(words))

    def _may_be(self, token: str, wanted: str) -> bool:
        """Whether a token is what is wanted, or the shell may put that in its place."""
        if fnmatch.fnmatchcase(token, wanted):
            return True
        if token not in self.globs:
            return False
        before, sought = _GLOB.split(token)[0], _GLOB.split(wanted)[0]
        alike = before.startswith(sought) or sought.startswith(before)
        return alike and ("/" in wanted or fnmatch.fnmatchcase(wanted.strip("*"), token))


@functools.lru_cache(maxsize=64)
def parsed(text: str) -> Line:
    """The simple commands of a line; never raises."""
    if len(text) > _LONGEST_LINE:
        return Line(text[:_LONGEST_LINE], (), "it is too long to be looked at")
    commands: list[list[str]] = [[]]
    targets: list[str] = []
    globs: set[str] = set()
    at, redirects, after = 0, False, ""
    while at < len(text):
        piece = _PIECE.match(text, at)
        kind = piece.lastgroup if piece is not None else None
        if piece is None or (after == "redirection" and kind not in ("blank", "word")):
            return Line(text, (), f"it has {text[at]!r} in it")
        at = piece.end()
        if kind == "word":
            word = _QUOTED.sub(lambda quoted: quoted[0][1:-1], piece[0])
            is_glob = _GLOB.search(_QUOTED.sub("", piece[0])) is not None
            if is_glob:
                globs |= {word.casefold(), _base(word).casefold() if _GLOB.sub("", _base(word)) else ""}
            if after == "redirection":
                targets.append(word)
            elif not commands[-1] and ((is_glob and word != "[") or _ASSIGNMENT.match(piece[0])):
                return Line(text, (), f"{piece[0]!r} stands in the place of a program")
            else:
                commands[-1].append(word)
        elif kind == "end":
            commands.append([])
        redirects = redirects or kind in ("redirection", "descriptor")
        after = after if kind == "blank" else kind or ""
    if after == "redirection":
        return Line(text, (), "it ends in a redirection")
    found = tuple(tuple(words) for words in commands if words)
    doubt = next((why for why in map(_doubt_in, found) if why), "") if found else "it names no program"
    if targets and found:
        found = (*found[:-1], (*found[-1], *targets))
    return Line(text, found, doubt, redirects, frozenset(globs))


def _doubt_in(command: Sequence[str]) -> str:
    """Why nobody can tell from its words what a simple command runs."""
    program, words = _base(command[0]).casefold(), command[1:]
    named = words[1:] if words[:1] in (("-m",), ["-m"]) else words
    is_file = bool(named) and not named[0].startswith(("-", "/dev/", "/proc/"))  # or a module, given to an interpreter
    scripts = [word for word in words if not word.startswith("-")]
    plain = all(_SED_OPTIONS.fullmatch(word) for word in words if word.startswith("-"))
    runs = (
        program in _RESERVED
        or program in _RUNNERS
        or not program
        or any(map(_EVALUATED.search, words))
        or _LOADERS.fullmatch(program)
        or (_INTERPRETERS.fullmatch(program) and not is_file)
        or (program in _AWK and any(map(_AWK_RUNS.search, words)))
        or (program in ("sed", "gsed") and not (scripts and plain and _SED_PLAIN.fullmatch(scripts[0])))
        or (program == "find" and any(word.startswith(_FIND_RUNS) for word in words))
        or (program == "git" and (not words or words[0].startswith("-") or any(w.startswith(_GIT_RUNS) for w in words)))
    )
    return f"{command[0]} may run what its arguments say" if runs else ""


def _inner(word: str) -> Iterator[str]:
    """What a word holds beside itself: a program's name without its path, and the words in a quoted line."""
    for token in _SEPARATING.split(re.sub(r"['\"\\]", "", word)):
        if token:
            yield from (token, _base(token), posixpath.normpath(token))


def _base(word: str) -> str:
    return posixpath.basename(word.rstrip("/")) or word


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a call, and in words why, where a rule or the call itself gives a reason."""

    verdict: Verdict
    why: str = ""
    always_asks: bool = False
    """A person decides on each such call, whatever was allowed before."""
    by_rule: bool = False
    """A rule asks: what was allowed without that rule in mind does not answer it."""
    git_command: str = ""
    """Of git: it is allowed as long as the repository has git run nothing for it."""
    instead: str = ""
    """What a model whose call was not approved is told to do, in the place of why."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns `tool` or `tool:pattern`, with wildcards; the pattern is about the arguments that the tool declares.

    Deny wins, then ask, then allow. What cannot be told of a call counts as named by rules that deny or ask, and never
    by one that allows.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: bool = False
    """Nothing that writes or executes runs, whatever else is allowed."""
    yes: bool = False
    """What no rule denies is allowed, but for writing what is executed later, or less over a file than it held."""
    force: bool = False
    """Writing less over a file is like any other writing."""
    trusted: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Models of which the settings say whether they may write and run what the request does not name."""
    workspace: Path = Path()
    """Where paths begin."""
    own: tuple[Path, ...] = ()
    """The folders in which the shell keeps its settings and rules."""

    def judge(self, call: Call, tool: Tool) -> Judgement:
        """What the rules say of this call of the tool; may look at the disk."""
        effects = tool.effects
        if self.read_only and effects & {"write", "execute"}:
            return Judgement("deny", "the shell is read-only")
        seen = _Seen(call, tool, self.workspace)
        if why := next((why for why in map(seen.reached, self.deny) if why), ""):
            return Judgement("deny", f"a rule in the settings forbids it ({why})")
        if "write" in effects:
            own = [os.path.realpath(folder) for folder in self.own]
            later = _executed_later(seen.written(), own)
            said = f"This file is executed later: {later}" if later else "" if self.force else seen.shrinks()
            if said:
                return Judgement("ask", f"{said}. A person decides each time, also with --yes.", always_asks=True)
        if self.yes:
            return Judgement("allow")
        if why := ", ".join(filter(None, map(seen.reached, self.ask))):
            return Judgement("ask", f"A rule in the settings asks ({why}).", by_rule=True)
        if effects <= HARMLESS:
            return Judgement("allow")
        rule = next(filter(seen.is_covered, self.allow), None)
        if rule is None:
            return Judgement("ask")
        return Judgement("allow", git_command=seen.git_command() if ":" in rule else "")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A call as the tool will see it; a part is looked at only where a rule speaks of it."""

    call: Call
    tool: Tool
    workspace: Path

    def reached(self, rule: str) -> str:
        """The rule, with why where it is not plain, if the call does or may do what it names; else empty."""
        name, colon, wanted = rule.partition(":")
        if not fnmatch.fnmatchcase(self.call.name, name):
            return ""
        if not colon:
            return rule
        if not subjects_of(self.tool):
            return f"{rule}; what the call would do cannot be told from its arguments"
        for subject, text in self._subjects():
            if text is None:
                return f"{rule}; an argument is no text"
            if subject is Subject.COMMAND:
                line = parsed(text)
                if line.may_run(wanted):
                    return f"{rule}; it cannot be told what the line runs: {line.doubt}" if line.doubt else rule
            elif subject is Subject.PATH:
                places = _places(self.workspace, text)
                if places is None or _may_be_in(self.workspace, wanted, places):
                    return rule
            else:
                address = _address(text)
                found = address is None or fnmatch.fnmatchcase(address.casefold(), _lowered(wanted).casefold())
                if found or fnmatch.fnmatchcase(text, wanted):
                    return rule
        return ""

    def is_covered(self, rule: str) -> bool:
        """Whether a rule that allows speaks of all that the call does."""
        name, colon, wanted = rule.partition(":")
        if not fnmatch.fnmatchcase(self.call.name, name):
            return False
        if not colon:
            return True
        if list(self.call.arguments.values()) == [wanted] and Subject.PATH not in subjects_of(self.tool).values():
            return True  # to the letter
        subjects = list(self._subjects())
        for subject, text in subjects:
            if text is None:
                return False
            if subject is Subject.COMMAND:
                line = parsed(text)
                words = (word for command in line.commands for word in command[1:])
                # a wildcard does not speak of a file that is executed later; HEAD is a commit, most of all
                words = (each for word in words for each in _values_in(word))
                named = (part for word in words for part in re.split(r"[=:,]", word) if part != "HEAD")
                if not line.is_only(wanted) or any(_may_be_executed_later(self.workspace, part) for part in named):
                    return False
            elif subject is Subject.PATH:
                places, pattern = _places(self.workspace, text), _pattern(os.path.realpath(self.workspace), wanted)
                if places is None or not all(fnmatch.fnmatchcase(place, pattern) for place in places):
                    return False
            else:
                address = _address(text)
                if address is None or ".." in address or not fnmatch.fnmatchcase(address, _lowered(wanted)):
                    return False
        return bool(subjects)

    def git_command(self) -> str:
        """The command of git that the call runs; "git" where it is not plain which, empty where it runs none."""
        lines = [parsed(text) for subject, text in self._subjects() if subject is Subject.COMMAND and text]
        found = [words for line in lines for words in line.commands if "git" in map(posixpath.basename, words)]
        return found[0][1] if len(found) == 1 and found[0][0] == "git" and len(found[0]) > 1 else "git" * bool(found)

    def written(self) -> Iterator[str]:
        """The absolute paths that the call may write to, of a tool that declares them; else of all its texts.

        What a command or a program's text writes is not told.
        """
        declared = subjects_of(self.tool)
        if not declared and "execute" in self.tool.effects:
            return
        paths = [text for subject, text in self._subjects() if subject is Subject.PATH and text is not None]
        for text in () if declared else _texts(self.call.arguments):
            plain = unquote(_FILE_ADDRESS.sub("", text, count=1))  # what a stranger's tool may make of it
            plain = f"{Path.home()}{plain[1:]}" if plain.startswith("~/") else plain
            paths += [text] if plain == text else [text, plain]
        for path in paths:
            yield from _places(self.workspace, path) or ()

    def shrinks(self) -> str:
        """How much less a file would hold after the call, in words, where the call names its whole text; else empty."""
        named = subjects_of(self.tool)
        content = next((self.call.arguments.get(name) for name in named if named[name] is Subject.CONTENT), None)
        for path in self.written() if isinstance(content, str) else ():
            with suppress(OSError):
                before = posixpath.getsize(path) if posixpath.isfile(path) else 0
                if before > (after := len(str(content).encode(errors="replace"))):
                    return f"The file holds {before:,} bytes, and would hold {after:,}"
        return ""

    def _subjects(self) -> Iterator[tuple[Subject, str | None]]:
        """The declared arguments that patterns are about, with their defaults; None for one that cannot be told.

        A list that names nothing cannot be told: a tool takes that for whatever there is.
        """
        properties = cast("Mapping[str, Any]", self.tool.schema.parameters.get("properties") or {})
        for name, subject in subjects_of(self.tool).items():
            if subject is Subject.CONTENT:
                continue
            value = self.call.arguments.get(name)
            if value is None:
                schema: object = properties.get(name)
                value = cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None
            if value is not None:
                listed = cast("list[object]", value) if isinstance(value, list) else [value]
                yield from ((subject, each if isinstance(each, str) else None) for each in listed or [None])


def _texts(value: object) -> Iterator[str]:
    """All texts in the arguments, however deep, and all names in them but the arguments' own."""
    left = [*cast("Mapping[str, object]", value).values()] if isinstance(value, Mapping) else [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            left += [*cast("Mapping[str, object]", each).keys(), *cast("Mapping[str, object]", each).values()]
        elif isinstance(each, list):
            left += cast("list[object]", each)


def _places(workspace: Path, path: str) -> tuple[str, str] | None:
    """A path as it is named, normalised, and where it leads, both absolute; None for what is no path."""
    if not path.strip() or "\0" in path or len(path) > _LONGEST_PATH:
        return None
    try:
        top, given = os.path.realpath(workspace), posixpath.abspath(workspace)
        named, real = posixpath.normpath(posixpath.join(top, path)), os.path.realpath(posixpath.join(top, path))
    except (OSError, ValueError):
        return None
    if f"{named}/".startswith(f"{given}/"):  # the workspace is known by a link to it
        named = f"{top}{named[len(given) :]}"
    return named, real


def _pattern(top: str, wanted: str) -> str:
    """A rule's pattern with the workspace before it, normalised; a last slash stands for all that is below."""
    below = f"{wanted}*" if wanted.endswith("/") else wanted
    return posixpath.normpath(below) if posixpath.isabs(below) else posixpath.normpath(f"{glob.escape(top)}/{below}")


def _may_be_in(workspace: Path, wanted: str, places: tuple[str, str]) -> bool:
    """Whether the pattern names one of these places, a folder that it is in, or, of a folder, something in it."""
    top, before = os.path.realpath(workspace), _GLOB.split(wanted)[0]
    folder = before if before == wanted else before[: before.rfind("/") + 1]
    led = glob.escape(os.path.realpath(posixpath.join(top, folder)))  # the links before the first wildcard are followed
    led = f"{led}/{wanted[len(folder) :]}" if len(folder) < len(wanted) else led
    patterns = {_pattern(top, wanted), led, *([wanted] if wanted.startswith("*") else [])}
    is_folder = posixpath.isdir(places[1])
    for pattern, place in itertools.product(map(_folded, patterns), map(_folded, places)):
        plain = _GLOB.split(pattern)[0]
        if any(fnmatch.fnmatchcase(above, pattern) for above in _upward(place)):
            return True
        if is_folder and (plain.startswith(f"{place}/") or f"{place}/".startswith(plain)):
            return True
    return False


def _upward(path: str) -> Iterator[str]:
    """The path, and every folder that it is in."""
    yield path
    while path != (path := posixpath.dirname(path)):
        yield path


def _address(text: str) -> str | None:
    """An address in one spelling; None for one that could be read as another."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or not text.isascii():
        return None
    scheme, host, port, rest = (found[1] or "https").lower(), found[2].lower(), found[3] or "", found[4] or "/"
    if port == _PORTS[scheme]:
        port = ""
    return f"{scheme}://{host}{port}{rest if rest.startswith('/') else f'/{rest}'}"


def _lowered(pattern: str) -> str:
    """The pattern of an address, its scheme and host in lower case."""
    scheme, sign, rest = pattern.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{sign}{host.lower()}{slash}{path}" if sign else pattern


def _folded(text: str) -> str:
    """A path as the most forgiving file system reads it, where `.GIT` and `.git` are one folder."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain if plain.isascii() else "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")


def _values_in(word: str) -> list[str]:
    """A word, and what may be the value of an option in it: of `-oFILE`, `FILE`."""
    begins = range(2, min(_LONGEST_OPTIONS, len(word))) if word.startswith("-") else ()
    return [word, *(word[at:] for at in begins)]


def _may_be_executed_later(workspace: Path, word: str) -> bool:
    """Whether what a word names may be executed later, also by its wildcards; those that are or find too many may."""
    named, wild = [word], sum(1 for part in word.split("/") if _GLOB.search(part))
    if wild > _LOOKED_FOR:
        return True
    if wild:
        found = glob.iglob(posixpath.expanduser(word), root_dir=workspace)  # noqa: PTH207 - it may be anywhere
        named += itertools.islice(found, _MOST_FOUND)
    return len(named) > _MOST_FOUND or any(_executed_later(_places(workspace, one) or ()) for one in named)


def _executed_later(paths: Iterable[str], own: Iterable[str] = ()) -> str:
    """Why a file with one of these absolute paths is run later; empty where none is. `own` are the shell's own folders.

    Looks at the disk only for a repository that the file would be in.
    """
    for path in paths:
        name = _folded(path)
        if any(f"{name}/".startswith(f"{_folded(folder)}/") for folder in own):
            return "ecoshell itself goes by what is in there"
        for why, patterns in _RUN_LATER.items():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                return why
        above = _upward(posixpath.dirname(path))
        if any(posixpath.isfile(f"{folder}/HEAD") and posixpath.isdir(f"{folder}/refs") for folder in above):
            return "git runs what it names"  # a repository without a working tree
    return ""


_INSTRUCTIONS = "AGENTS.md:"
"""Begins what was said of a project's instructions, which no tool's name can: `AGENTS.md:trusted:SHA-256`."""


class ProjectRules:
    """The approval rules of all projects in one JSON file: `{"/path/of/project": ["write_file", …]}`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rules(self, workspace: Path) -> tuple[str, ...]:
        """What is allowed in this project; raises StoreError when the file is damaged or cannot be read."""
        kept = self._read().get(os.path.realpath(workspace), ())
        return tuple(rule for rule in kept if not rule.startswith(_INSTRUCTIONS))

    def allow(self, workspace: Path, rule: str) -> None:
        """Add a rule; the file is replaced as a whole. Raises StoreError when it cannot be."""
        everything, project = self._read(), os.path.realpath(workspace)
        kept = everything.get(project, ())
        if rule not in kept:
            self._write({**everything, project: (*kept, rule)})

    def trusts(self, workspace: Path, text: str) -> tuple[bool | None, bool]:
        """What was said of these instructions of the project, None where nothing was; and whether it was of others.

        Raises StoreError.
        """
        kept = self._read().get(os.path.realpath(workspace), ())
        said = next((rule for rule in kept if rule.startswith(_INSTRUCTIONS)), "")
        for trusted in (True, False):
            if said == _word(text, trusted=trusted):
                return trusted, False
        return None, bool(said)

    def trust(self, workspace: Path, text: str, *, trusted: bool) -> None:
        """Keep what is said of these instructions, in the place of what was said of others; raises StoreError."""
        everything, project = self._read(), os.path.realpath(workspace)
        others = (rule for rule in everything.get(project, ()) if not rule.startswith(_INSTRUCTIONS))
        self._write({**everything, project: (*others, _word(text, trusted=trusted))})

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            if is_special(self._file):  # a pipe would be waited for
                raise ValueError("it is no file")
            table: Any = json.loads(self._file.read_bytes())
            if not isinstance(table, dict):
                raise ValueError("it is no table")
            found: dict[str, tuple[str, ...]] = {}
            for project, rules in cast("dict[str, Any]", table).items():
                if not isinstance(rules, list):
                    raise ValueError("it has no list of rules")
                found[project] = tuple(map(str, cast("list[Any]", rules)))
            return found
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read ({error.strerror}).", fix="Make it readable.") from error
        except (ValueError, RecursionError) as error:
            kept, fix = "It was left as it is.", "Move it away to start with no rules."
            raise StoreError(f"{self._file} is damaged.", kept=kept, fix=fix) from error

    def _write(self, everything: dict[str, tuple[str, ...]]) -> None:
        text = json.dumps(everything, indent=2, sort_keys=True) + "\n"
        try:
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(text.encode())
        except OSError as error:
            raise StoreError(
                f"{self._file} cannot be written ({error.strerror}).",
                kept="What you said holds until this session ends.",
                fix=remedy(error, "Make the folder writable and say it again."),
            ) from error


def _word(text: str, *, trusted: bool) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{_INSTRUCTIONS}{'trusted' if trusted else 'refused'}:{digest}"
