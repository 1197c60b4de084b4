"""`@path` in a question: the file goes along with it as an attachment, a folder as its listing."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ecoshell.errors import ToolError
from ecoshell.messages import Attachment
from ecoshell.tools.workspace import CLOSED, Entry, Workspace, walk

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


@dataclass(slots=True)
class Mentioned:
    """What the mentions of a question came to."""

    attachments: list[Attachment] = field(default_factory=list[Attachment])
    notices: list[str] = field(default_factory=list[str])
    """What was cut, and what looked like a path and cannot be read."""


@dataclass(frozen=True, slots=True)
class _Mention:
    path: str
    quoted: bool

    @property
    def is_meant(self) -> bool:
        """Whether it must be a path: no decorator, no user name."""
        _, dot, ending = self.path.rpartition(".")
        return self.quoted or "/" in self.path or (bool(dot) and ending.lower() in _ENDINGS)


def attach(workspace: Workspace, question: str, given: Iterable[Attachment] = ()) -> Mentioned:
    """Read what the question mentions, each thing once, and nothing that is `given` already; may block."""
    reader = _Reader(workspace, {attachment.name for attachment in given})
    for mention in _mentions(question):
        try:
            reader.read(mention)
        except ToolError as error:
            if mention.is_meant:
                reader.found.notices.append(f"@{mention.path} was not attached: {error.message}")
    return reader.found


def without_marks(question: str) -> str:
    """The question as it would be said without mentions: `@notes.txt` is `notes.txt`."""
    parts: list[str] = []
    at = 0
    for match in _matches(question):
        parts.append(question[at : match.start()])
        at = match.start() + 1
    return "".join((*parts, question[at:]))


class _Reader:
    """Reads one mention after the other while there is room."""

    def __init__(self, workspace: Workspace, known: set[str]) -> None:
        self.found = Mentioned()
        self._workspace = workspace
        self._known = known
        self._room = ALL_BYTES

    def read(self, mention: _Mention) -> None:
        """Attach what is mentioned; raises ToolError when that cannot be done."""
        path = _existing(self._workspace, mention.path)
        if path is None:
            raise ToolError("there is no such file or folder in the workspace.")
        real = self._workspace.resolve(path)
        name = self._workspace.name(real) + ("/" if real.is_dir() else "")
        if name in self._known:
            return
        text = _listing(self._workspace, path) if real.is_dir() else self._text(path, name)
        self._room -= len(text.encode())
        self._known.add(name)
        self.found.attachments.append(Attachment(name, text))

    def _text(self, path: str, name: str) -> str:
        if self._room <= 0:
            raise ToolError(f"the question carries {ALL_BYTES:,} bytes of files already.")
        head = self._workspace.read_head(path, min(FILE_BYTES, self._room))
        if head.size <= head.taken:
            return head.text
        part = f"the first {head.taken:,} of {head.size:,} bytes"
        self.found.notices.append(f"@{name} was cut: {part} are attached.")
        return f"{head.text}\n[cut: {part}]"


def _matches(question: str) -> Iterator[re.Match[str]]:
    """What follows an `@`, code left out: there it is a decorator."""
    return _MENTION.finditer(_CODE.sub(lambda code: " " * len(code.group()), question))


def _mentions(question: str) -> list[_Mention]:
    found = (_Mention(match["quoted"] or match["plain"], match["quoted"] is not None) for match in _matches(question))
    return list(dict.fromkeys(found))


def _existing(workspace: Workspace, path: str) -> str | None:
    """The path, or without the sentence's signs at its end, as far as there is such a thing."""
    for candidate in dict.fromkeys((path, path.rstrip(_TRAILING))):
        if candidate and workspace.exists(candidate):
            return candidate
    return None


def _listing(workspace: Workspace, path: str) -> str:
    with workspace.folder(path) as (descriptor, _):
        entries = sorted(_line(entry) for entry in itertools.islice(walk(descriptor, _DEPTH), _LISTED + 1))
    if not entries:
        return "(an empty folder)"
    more = ["[there is more]"] if len(entries) > _LISTED else []
    return "\n".join([*entries[:_LISTED], *more])


def _line(entry: Entry) -> str:
    if entry.is_folder:
        return f"{entry.path}/" + ("  (not entered)" if entry.name in CLOSED else "")
    return entry.path
