"""Command lines as rules see them: parsed into simple commands, or marked as doubtful.

`shlex` does not serve here, because it does not distinguish a quoted operator from one that the shell obeys.
"""

import fnmatch
import functools
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ecoshell.tools.path_patterns import GLOB

_MAX_CHARACTERS = 20_000
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
"""Programs that run commands given as arguments."""
_LOADERS = re.compile(r"ld(-\w+)*\.so(\.\d+)*|ld-[\w.-]+|i386|linux(32|64)|x86_64")
_INTERPRETERS = re.compile(
    r"(pythonw?|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|rscript|osascript)[\d.]*"
)
_AWK = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_AWK_RUNS = re.compile(r"system|[|@]|getline|\\|-f|--|/dev/|print.*>")
_SED_PLAIN = re.compile(
    r"(\d+|\$)?(,(\d+|\$))?[pdq]|s([/|#,])(?:(?!\4)[^\\\n])*\4(?:(?!\4)[^\\\n])*\4[gpiI\d]*"
)
_SED_OPTIONS = re.compile("-[nErisu]+")
_FIND_RUNS = ("-exec", "-ok", "-delete", "-fprint", "-fls")
_GIT_RUNS = ("--ou", "--ext", "--op", "--up", "--rece", "--exec", "-O")
"""Prefixes of git options that write files or name programs."""
_TEXT_PROGRAMS = frozenset([
    "[", "test", "echo", "printf", "cat", "ls", "grep", "egrep", "fgrep", "head", "tail", "wc", "cut", "true",
    "false", "pwd", "cd", "mkdir", "touch", "stat", "basename", "dirname", "sleep",
])  # fmt: skip
"""Programs that never run their arguments, even if these are names of programs."""
_PLAIN_PROGRAMS = _TEXT_PROGRAMS | frozenset([
    "base64", "chgrp", "chmod", "chown", "cksum", "cmp", "comm", "cp", "curl", "date", "dd", "df", "diff",
    "dig", "du", "expand", "expr", "find", "fmt", "fold", "gsed", "hexdump", "host",
    "hostname", "id", "install", "join", "kill", "ln", "md5sum", "mv", "nc", "nl", "nslookup", "od",
    "paste", "ping", "ps", "readlink", "realpath", "rev", "rm", "rmdir", "scp", "sed", "seq", "sha1sum", "sha256sum",
    "sha512sum", "shred", "sort", "split", "strings", "tac", "tee", "tr", "tree", "truncate", "type", "umask",
    "uname", "unexpand", "uniq", "unlink", "uptime", "wget", "which", "whoami", "xxd", "yes", *_AWK,
])  # fmt: skip
"""Programs that read, write and reach only what their arguments name."""
_PROGRAM_FOLDERS = ("", "/bin", "/usr/bin")
_SEARCHES = frozenset({"grep", "egrep", "fgrep"})
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rRd]|--(dereference-)?rec|--dir")
_LISTS = re.compile(r"--?fi")
"""Options with a file that lists other files, such as `--files0-from`, or with a program."""
_DOWNLOAD_LISTS = re.compile(r"-[a-zA-Z]*[KiJe]|--(conf|inp|exec|content-d|remote-h)")
"""The same of `curl` and `wget`, and those that let the server choose the name of a file."""
_OPERATORS = frozenset({"|", "||", "&&", "&", ";"})
_SEPARATORS = re.compile(r"[^\w./*?\[\]~+-]+")
_EVALUATED_INDEX = re.compile(r"\[.*(\$\(|`)", re.DOTALL)
"""An index in which bash runs a command, even if quoted: `printf -v 'a[$(…)]'`."""


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A parsed command line: the words of each simple command, without quotes.

    Expansions, nesting and commands inside arguments are not followed; they leave a doubt. A doubtful line matches
    every rule that denies or asks, and no rule that allows. This is not a sandbox: a program may run any other program.
    """

    text: str
    commands: tuple[tuple[str, ...], ...]
    doubt: str = ""
    """Why the line's commands are uncertain; empty if they are certain."""
    redirects: bool = False
    globs: frozenset[str] = frozenset()
    """Words that the shell replaces with file names."""

    def may_run(self, pattern: str) -> bool:
        """Whether the line runs, or may run, what a rule that denies or asks names.

        The words of the pattern must occur in this order in one command; other words may come between them. A program
        matches by any path, also as an argument of another program.
        """
        if self.doubt or fnmatch.fnmatchcase(self.text, pattern):
            return True
        words = (word.strip("'\"") for word in pattern.casefold().split())
        pattern_words = [word for word in words if word not in _OPERATORS]
        while pattern_words and pattern_words[-1] == "*":
            pattern_words.pop()
        if not pattern_words:
            return True
        pattern_words[0] = _base(pattern_words[0])
        is_chained = not _OPERATORS.isdisjoint(pattern.split())
        commands = [sum(self.commands, ())] if is_chained else self.commands
        return any(self._matches(command, pattern_words) for command in commands)

    def is_only(self, pattern: str) -> bool:
        """Whether the line is one plain command that a rule that allows matches, word by word."""
        if self.doubt or self.redirects or len(self.commands) != 1:
            return False
        words = (word.strip("'\"") for word in pattern.split())
        return fnmatch.fnmatchcase("\0".join(self.commands[0]), "\0".join(words))

    def hidden_use(self) -> str:
        """Why the arguments may not show all files and addresses that the line uses; empty if they do."""
        hidden = next((command[0] for command in self.commands if _uses_more(command)), "")
        return (
            f"{hidden} may use files or addresses that its arguments do not name" if hidden else ""
        )

    def _matches(self, command: Sequence[str], pattern_words: Sequence[str]) -> bool:
        words = [word.casefold() for word in command]
        if _base(words[0]) in _TEXT_PROGRAMS and not self.redirects:
            if not fnmatch.fnmatchcase(_base(words[0]), pattern_words[0]):
                return False
            words, pattern_words = words[1:], pattern_words[1:]
        tokens = iter([token for word in words for token in (word, *_inner_words(word))])
        return all(any(self._may_be(token, word) for token in tokens) for word in pattern_words)

    def _may_be(self, token: str, pattern: str) -> bool:
        """Whether a token matches the pattern, or the shell may expand it to a match."""
        if fnmatch.fnmatchcase(token, pattern):
            return True
        if token not in self.globs:
            return False
        token_stem, pattern_stem = GLOB.split(token)[0], GLOB.split(pattern)[0]
        is_alike = token_stem.startswith(pattern_stem) or pattern_stem.startswith(token_stem)
        return is_alike and ("/" in pattern or fnmatch.fnmatchcase(pattern.strip("*"), token))


@functools.lru_cache(maxsize=64)
def parse_line(text: str) -> ShellLine:
    """Parse a command line into simple commands; never raises."""
    if len(text) > _MAX_CHARACTERS:
        return ShellLine(text[:_MAX_CHARACTERS], (), "it is too long")
    commands: list[list[str]] = [[]]
    targets: list[str] = []
    globs: set[str] = set()
    position = 0
    redirects = False
    previous = ""
    while position < len(text):
        piece = _PIECE.match(text, position)
        kind = piece.lastgroup if piece is not None else None
        if piece is None or (previous == "redirection" and kind not in ("blank", "word")):
            return ShellLine(text, (), f"it contains {text[position]!r}")
        position = piece.end()
        if kind == "word":
            word = _QUOTED.sub(lambda quoted: quoted[0][1:-1], piece[0])
            is_glob = GLOB.search(_QUOTED.sub("", piece[0])) is not None
            if is_glob:
                base = _base(word) if GLOB.sub("", _base(word)) else ""
                globs |= {word.casefold(), base.casefold()}
            if previous == "redirection":
                targets.append(word)
            elif not commands[-1] and ((is_glob and word != "[") or _ASSIGNMENT.match(piece[0])):
                return ShellLine(text, (), f"{piece[0]!r} comes before the program")
            else:
                commands[-1].append(word)
        elif kind == "end":
            commands.append([])
        redirects = redirects or kind in ("redirection", "descriptor")
        previous = previous if kind == "blank" else kind or ""
    if previous == "redirection":
        return ShellLine(text, (), "a redirection has no target")
    words = tuple(tuple(command) for command in commands if command)
    if not words:
        return ShellLine(text, (), "it names no program", redirects, frozenset(globs))
    doubt = next((doubt for command in words if (doubt := _doubt_in(command))), "")
    return ShellLine(
        text, (*words[:-1], (*words[-1], *targets)), doubt, redirects, frozenset(globs)
    )


def _doubt_in(command: Sequence[str]) -> str:
    """Why a simple command may run other programs; empty if it cannot."""
    program, words = _base(command[0]).casefold(), command[1:]
    operands = words[1:] if words[:1] in (("-m",), ["-m"]) else words
    # a file or module
    has_script = bool(operands) and not operands[0].startswith(("-", "/dev/", "/proc/"))
    sed_scripts = [word for word in words if not word.startswith("-")]
    sed_is_plain = all(_SED_OPTIONS.fullmatch(word) for word in words if word.startswith("-"))
    runs = (
        program in _RESERVED
        or program in _RUNNERS
        or not program
        or any(map(_EVALUATED_INDEX.search, words))
        or _LOADERS.fullmatch(program)
        or (_INTERPRETERS.fullmatch(program) and not has_script)
        or (program in _AWK and any(map(_AWK_RUNS.search, words)))
        or (
            program in ("sed", "gsed")
            and not (sed_scripts and sed_is_plain and _SED_PLAIN.fullmatch(sed_scripts[0]))
        )
        or (program == "find" and any(word.startswith(_FIND_RUNS) for word in words))
        or (
            program == "git"
            and (
                not words or words[0].startswith("-") or any(w.startswith(_GIT_RUNS) for w in words)
            )
        )
    )
    return f"{command[0]} may run programs named in its arguments" if runs else ""


def _uses_more(command: Sequence[str]) -> bool:
    """Whether a simple command may use files or addresses that its arguments do not name."""
    folder, program = posixpath.split(command[0])
    if program not in _PLAIN_PROGRAMS or folder not in _PROGRAM_FOLDERS:
        return True
    options = [word for word in command[1:] if word.startswith("-")]
    if program in _SEARCHES:  # Without a path, a recursive search reads this folder.
        operands = [word for word in command[1:] if word not in options and not word.isdigit()]
        return len(operands) < 2 and any(map(_RECURSIVE.match, options))
    lists = _DOWNLOAD_LISTS if program in ("curl", "wget") else _LISTS
    return (program == "cd" and "-" in options) or any(map(lists.match, options))


def _inner_words(word: str) -> Iterator[str]:
    """The words inside a word: those of a quoted line, and the name of a program without its path."""
    for token in _SEPARATORS.split(re.sub(r"['\"\\]", "", word)):
        if token:
            yield from (token, _base(token), posixpath.normpath(token))


def _base(word: str) -> str:
    return posixpath.basename(word.rstrip("/")) or word
