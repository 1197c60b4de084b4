"""The workspace as the person uses it beside the agent: files that are mentioned, commands, and what can be undone."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ecoshell.errors import ToolError
from ecoshell.messages import Attachment, Observation
from ecoshell.tools.base import ToolOptions
from ecoshell.tools.builtin.commands import CommandTools, passes
from ecoshell.tools.project import files_of
from ecoshell.tools.undo import UndoLog
from ecoshell.tools.workspace import CLOSED, Workspace, walk

FILE_BYTES = 100_000
"""Of one file; the rest is cut."""
ALL_BYTES = 400_000
"""Of all files of one question."""
_LISTED = 500
_DEPTH = 2

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MENTION = re.compile(r"(?<![\w@/.+-])@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<plain>[^\s\"'`@<>()\[\]{},;|&$*?!#]+))")
_TRAILING = ".:"
"""Signs that end a sentence more often than a name."""
_FILE_ENDINGS = (
    "bash c cc cfg conf cpp cs css csv diff env go h hpp htm html ini ipynb java jpg jpeg js json jsonl jsx kt lock "
    "log lua md mjs patch pdf php pl png py pyi r rb rs rst scss sh sql svg swift tex toml ts tsv tsx txt vue xml yaml "
    "yml zip zsh"
)
_ENDINGS = frozenset(_FILE_ENDINGS.split())
"""What follows the last dot in the name of a file, and hardly ever in that of a decorator."""
_NAME = re.compile(r"[/.]")
"""What a word has in it that may name a file."""
_PATTERN = re.compile(r"(?<![\w./])\*?\.(\w+)")
"""The ending of files that are named by it alone: `.jpg`, `*.csv`; then they are in the workspace's folder."""
_AROUND_NAMES = "\"'`()[]{}<>,;:!?."
_NAMED = 20
"""Names that are looked at."""
_WORDS = 400
"""Of a question."""
_NAMED_BYTES, _SOURCE_BYTES = 800, 2_000
"""Of a file that is named without a mark; of one of Python, which is changed as a whole."""
_FRESH = 5.0
"""Seconds for which a list of files is given again."""


@dataclass(slots=True)
class Mentioned:
    """What the mentions of a question came to."""

    attachments: list[Attachment] = field(default_factory=list[Attachment])
    notices: list[str] = field(default_factory=list[str])
    """What was cut, and what looked like a path and cannot be read."""


def attach(
    workspace: Workspace,
    question: str,
    given: Iterable[Attachment] = (),
    named: Callable[[str], bool] | None = None,
) -> Mentioned:
    """Read what the question mentions, each thing once, and nothing that is `given` already; may block.

    Of what it names without a mark and `named` says may be read, it is the beginning of a file, or what is in a folder.
    """
    found, known, room = Mentioned(), {attachment.name for attachment in given}, ALL_BYTES
    matches = _MENTION.finditer(without_code(question))
    mentions = dict.fromkeys((match["quoted"], match["quoted"] or match["plain"]) for match in matches)
    for quoted, mention in mentions:
        candidates = dict.fromkeys((mention, mention.rstrip(_TRAILING)))  # without a sentence's signs
        try:
            path = next((one for one in candidates if one and workspace.exists(one)), None)
            if path is None:
                raise ToolError("there is no such file or folder in the workspace.")
            real = workspace.resolve(path)
            name = workspace.name(real) + ("/" if real.is_dir() else "")
            if name in known:
                continue
            text, cut = (_listing(workspace, path), "") if real.is_dir() else _beginning(workspace, path, room)
        except ToolError as error:
            _, dot, ending = mention.rpartition(".")
            if quoted or "/" in mention or (dot and ending.lower() in _ENDINGS):  # no decorator, no user name
                found.notices.append(f"@{mention} was not attached: {error.message}")
            continue
        if cut:
            found.notices.append(f"@{name} was cut: {cut} are attached.")
        room -= len(text.encode())
        known.add(name)
        found.attachments.append(Attachment(name, text))
    for word in filter(named, _names(question, folders=workspace.root)) if named else ():
        with suppress(ToolError):
            if not workspace.exists(word):
                continue
            real = workspace.resolve(word)
            name = workspace.name(real) + ("/" if real.is_dir() else "")
            if name not in known:
                known.add(name)
                room = _SOURCE_BYTES if name.endswith(".py") else _NAMED_BYTES
                text = _listing(workspace, word) if real.is_dir() else _beginning(workspace, word, room)[0]
                found.attachments.append(Attachment(name, text))
    return found


def _names(question: str, *, folders: Path | None = None) -> Iterator[str]:
    """The words of a question that may name a file, or are the name of one of the `folders` in this one, or of it."""
    said = (word.rstrip(_AROUND_NAMES).lstrip(_AROUND_NAMES.replace(".", "")) for word in question.split()[:_WORDS])
    words = dict.fromkeys(said)
    inside = set[str]()
    with suppress(OSError):
        inside = {entry.name for entry in os.scandir(folders) if entry.is_dir()} if folders else inside
    named = [word for word in words if _NAME.search(word) or word in inside]
    if folders and any(ending.lower() in _ENDINGS for ending in _PATTERN.findall(question)):
        named.append(".")
    return itertools.islice(named, _NAMED)


def _beginning(workspace: Workspace, path: str, room: int) -> tuple[str, str]:
    """A file's text, as much of it as has room, and how much that is where it is not all; raises ToolError."""
    if room <= 0:
        raise ToolError(f"the question carries {ALL_BYTES:,} bytes of files already.")
    head = workspace.read_head(path, min(FILE_BYTES, room))
    if head.size <= head.taken:
        return head.text, ""
    part = f"the first {head.taken:,} of {head.size:,} bytes"
    return f"{head.text}\n[cut: {part}]", part


def without_marks(question: str) -> str:
    """The question as it would be said without mentions: `@notes.txt` is `notes.txt`."""
    parts: list[str] = []
    at = 0
    for match in _MENTION.finditer(without_code(question)):
        parts.append(question[at : match.start()])
        at = match.start() + 1
    return "".join((*parts, question[at:]))


def without_code(question: str) -> str:
    """The question with blanks in the place of code, where an `@` begins a decorator and no mention."""
    return _CODE.sub(lambda code: " " * len(code.group()), question)


def _listing(workspace: Workspace, path: str) -> str:
    with workspace.folder(path) as (descriptor, _):
        found = list(itertools.islice(walk(descriptor, _DEPTH), _LISTED + 1))
    entries: list[str] = []
    for entry in found:
        closed = "  (not entered)" if entry.name in CLOSED else ""
        entries.append(f"{entry.path}/{closed}" if entry.is_folder else entry.path)
    if not entries:
        return "(an empty folder)"
    more = ["[there is more]"] if len(entries) > _LISTED else []
    return "\n".join([*sorted(entries)[:_LISTED], *more])


class WorkspaceService:
    """One workspace; the tools of the agent write to it through the same undo log."""

    def __init__(self, workspace: Workspace, *, undo: UndoLog, options: ToolOptions) -> None:
        self.undo = undo
        self._workspace = workspace
        self._commands = CommandTools(workspace, options)
        self._options = options
        self._files: list[str] = []
        self._listed_at = -_FRESH
        self._listing = asyncio.Lock()

    async def mentioned(
        self, question: str, given: Sequence[Attachment] = (), named: Callable[[str], bool] | None = None
    ) -> Mentioned:
        """What the question mentions, read; see `attach`."""
        if "@" not in question and named is None:
            return Mentioned()
        return await asyncio.to_thread(attach, self._workspace, question, given, named)

    async def run(self, command: str) -> Observation:
        """Run a shell command within the limits of the tool run_command; raises ToolError when it cannot be started."""
        started = time.monotonic()
        seen = await self._commands.run_command(command)
        return replace(seen, seconds=time.monotonic() - started)

    async def check(self, command: str, text: str) -> bool:
        """Whether a command that is given this text finds it right; raises ToolError where it cannot tell."""
        return await passes(command, text, folder=self._workspace.root, options=self._options)

    def size_of_named(self, question: str) -> int | None:
        """Bytes of the largest file that the question names; None when it names none. May block."""
        sizes: list[int] = []
        for word in _names(question):
            with suppress(ToolError), self._workspace.reading(word) as (file, _):
                sizes.append(os.fstat(file.fileno()).st_size)
        return max(sizes, default=None)

    async def files(self) -> list[str]:
        """Files and folders (these end in a slash) that a question could mention, at most some 20,000."""
        async with self._listing:
            if time.monotonic() - self._listed_at > _FRESH:
                self._files = await files_of(self._workspace.root)
                self._listed_at = time.monotonic()
            return self._files
