"""What a line for the shell runs, as far as that is plain to see: the words of its simple commands.

Nothing is guessed. What the shell would expand, nest or hand to another program leaves a doubt, and a doubt counts
against the line: rules that deny or ask hold for it, rules that allow do not. This is no sandbox: a program may run any
other. `shlex` does not serve, as it does not tell a quoted sign from one that the shell acts on.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LONGEST = 20_000
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


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line: the words of each simple command, without quotes."""

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
        wanted = [word for word in _pattern_words(pattern.casefold()) if word not in _OPERATORS]
        while wanted and wanted[-1] == "*":
            wanted.pop()
        if not wanted:
            return True
        wanted[0] = _base(wanted[0])
        chained = not _OPERATORS.isdisjoint(pattern.split())
        commands = [sum(self.commands, ())] if chained else self.commands
        return any(self._names(command, wanted) for command in commands)

    def is_only(self, pattern: str) -> bool:
        """Whether the line is one plain command that the pattern covers, word by word: what rules that allow go by."""
        if self.doubt or self.redirects or len(self.commands) != 1:
            return False
        return fnmatch.fnmatchcase("\0".join(self.commands[0]), "\0".join(_pattern_words(pattern)))

    def _names(self, command: Sequence[str], wanted: Sequence[str]) -> bool:
        """Whether the wanted words, with their wildcards, come in a command in this order."""
        words = [word.casefold() for word in command]
        if _base(words[0]) in _TAKE_TEXT and not self.redirects:
            if not fnmatch.fnmatchcase(_base(words[0]), wanted[0]):
                return False
            words, wanted = words[1:], wanted[1:]
        tokens = iter([token for word in words for token in (word, *_inner(word))])
        return all(any(self._may_be(token, word) for token in tokens) for word in wanted)

    def _may_be(self, token: str, wanted: str) -> bool:
        """Whether a token is what is wanted, or the shell may put that in its place."""
        if fnmatch.fnmatchcase(token, wanted):
            return True
        if token not in self.globs:
            return False
        before, sought = _GLOB.split(token)[0], _GLOB.split(wanted)[0]
        alike = before.startswith(sought) or sought.startswith(before)
        return alike and ("/" in wanted or fnmatch.fnmatchcase(wanted.strip("*"), token))


def parsed(text: str) -> Line:
    """The simple commands of a line; never raises."""
    if len(text) > _LONGEST:
        return Line(text[:_LONGEST], (), "it is too long to be looked at")
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
            word, is_glob = _unquoted(piece[0])
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


def _unquoted(raw: str) -> tuple[str, bool]:
    """A word as the program is given it, and whether the shell takes it for a pattern of file names."""
    bare = _QUOTED.sub("", raw)
    return _QUOTED.sub(lambda quoted: quoted[0][1:-1], raw), bool(_GLOB.search(bare))


def _doubt_in(command: Sequence[str]) -> str:
    """Why nobody can tell from its words what a simple command runs."""
    program, words = _base(command[0]).casefold(), command[1:]
    runs = (
        program in _RESERVED
        or program in _RUNNERS
        or not program
        or any(map(_EVALUATED.search, words))
        or _LOADERS.fullmatch(program)
        or (_INTERPRETERS.fullmatch(program) and not _runs_a_file(words))
        or (program in _AWK and any(map(_AWK_RUNS.search, words)))
        or (program in ("sed", "gsed") and not _SED_PLAIN.fullmatch(_scripts_of(words)))
        or (program == "find" and any(word.startswith(_FIND_RUNS) for word in words))
        or (program == "git" and (not words or words[0].startswith("-") or any(w.startswith(_GIT_RUNS) for w in words)))
    )
    return f"{command[0]} may run what its arguments say" if runs else ""


def _runs_a_file(words: Sequence[str]) -> bool:
    """Whether an interpreter is given a file or a module, not code."""
    named = words[1:] if words[:1] in (("-m",), ["-m"]) else words
    return bool(named) and not named[0].startswith(("-", "/dev/", "/proc/"))


def _scripts_of(words: Sequence[str]) -> str:
    """The one script of sed, where it is given neither more nor otherwise; else a text that is none."""
    options = [word for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    return rest[0] if rest and all(map(_SED_OPTIONS.fullmatch, options)) else "?"


def _pattern_words(pattern: str) -> list[str]:
    return [word.strip("'\"") for word in pattern.split()]


def _inner(word: str) -> Iterator[str]:
    """What a word holds beside itself: a program's name without its path, and the words in a quoted line."""
    for token in _SEPARATING.split(re.sub(r"['\"\\]", "", word)):
        if token:
            yield from (token, _base(token), posixpath.normpath(token))


def _base(word: str) -> str:
    return posixpath.basename(word.rstrip("/")) or word
