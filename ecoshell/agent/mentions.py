"""Files, folders and images that a question mentions with `@`, and files that it names for a program."""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ecoshell.errors import ToolError
from ecoshell.images import attached, must_be_image, read_image
from ecoshell.messages import Attachment, Image
from ecoshell.tools.workspace import CLOSED, Workspace, walk

FILE_BYTES = 100_000
"""Bytes of one attached file; longer files are cut."""
ALL_BYTES = 400_000
"""Bytes of all files attached to one question."""
_MAX_ENTRIES = 500
_FOLDER_DEPTH = 2
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MENTION = re.compile(
    r"(?<![\w@/.+-])@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<plain>[^\s\"'`@<>()\[\]{},;|&$*?!#]+))"
)
_SENTENCE_SIGNS = ".:…”’»"
"""Signs at the end of a mention that more likely belong to the sentence."""
_SUFFIX_LIST = (
    "bash c cc cfg conf cpp cs css csv diff env go h hpp htm html ini ipynb java jpg jpeg js json "
    "jsonl jsx kt lock log lua md mjs patch pdf php pl png py pyi r rb rs rst scss sh sql svg swift "
    "tex toml ts tsv tsx txt vue xml yaml yml zip zsh"
)
_FILE_SUFFIXES = frozenset(_SUFFIX_LIST.split())
"""Suffixes of files that are rarely names of decorators."""
_PATH_CHARACTER = re.compile(r"[/.]")
_SUFFIX_PATTERN = re.compile(r"(?<![\w./])\*?\.(\w+)")
"""Files named by their suffix alone: `.jpg`, `*.csv`."""
_NAME_SIGNS = "\"'`()[]{}<>,;:!?."
_MAX_NAMES = 20
_MAX_WORDS = 400
"""Words of a question that are searched for names."""
_NAMED_BYTES = 800
"""Bytes of a file that is named without `@`."""
_NAMED_PYTHON_BYTES = 2_000
"""The same for Python files, which are edited as a whole."""


@dataclass(slots=True)
class Mentioned:
    """What a question mentions, read."""

    attachments: list[Attachment] = field(default_factory=list[Attachment])
    notices: list[str] = field(default_factory=list[str])
    """Cut files, and paths that could not be read."""


def attach(
    workspace: Workspace,
    question: str,
    attachments: Iterable[Attachment] = (),
    may_read: Callable[[str], bool] | None = None,
) -> Mentioned:
    """Read everything the question mentions once, except what is in `attachments`; may block.

    With `may_read`, also reads the beginnings of files and the listings of folders that the question names without
    `@`, if it returns true for them.
    """
    reader = _MentionReader(workspace, {attachment.name for attachment in attachments})
    matches = _MENTION.finditer(without_code(question))
    for quoted, plain in dict.fromkeys((match["quoted"], match["plain"]) for match in matches):
        reader.read(quoted or plain, is_quoted=bool(quoted))
    for name in filter(may_read, named_paths(question, folders=workspace.root)) if may_read else ():
        reader.read_named(name)
    return reader.result


@dataclass(slots=True)
class _MentionReader:
    workspace: Workspace
    attached_names: set[str]
    result: Mentioned = field(default_factory=Mentioned)
    free_bytes: int = field(default_factory=lambda: ALL_BYTES)

    def read(self, mention: str, *, is_quoted: bool) -> None:
        """Attach a mentioned file, folder or image, or add a notice if it looks like a path."""
        candidates = [*filter(None, dict.fromkeys((mention, mention.rstrip(_SENTENCE_SIGNS))))]
        try:
            path = next(filter(self.workspace.exists, candidates), None)
            if path is None:
                raise ToolError("no such file or folder in the workspace.")
            name, is_folder = self._name(path)
            if name not in self.attached_names:
                self._attach(path, name, is_folder=is_folder)
        except ToolError as error:
            _, dot, suffix = mention.rpartition(".")
            has_suffix = bool(dot) and suffix.lower() in _FILE_SUFFIXES
            exists = any(os.path.lexists(self.workspace.root / name) for name in candidates)
            if exists or is_quoted or "/" in mention or has_suffix:  # no decorator or user name
                self.result.notices.append(f"@{mention} was not attached: {error.message}")

    def _attach(self, path: str, name: str, *, is_folder: bool) -> None:
        if not is_folder and (image := _image(self.workspace, path, name)) is not None:
            self.attached_names.add(name)
            self.result.attachments.append(attached(image))
            return
        if is_folder:
            text = _listing(self.workspace, path)
        else:
            text, cut = _beginning(self.workspace, path, self.free_bytes)
            if cut:
                self.result.notices.append(f"@{name} was cut: {cut} are attached.")
        self.free_bytes -= len(text.encode())
        self._add(name, text)

    def read_named(self, path: str) -> None:
        """Attach the beginning of a file, or the listing of a folder, if it exists."""
        with suppress(ToolError):
            if not self.workspace.exists(path):
                return
            name, is_folder = self._name(path)
            if name in self.attached_names:
                return
            self.attached_names.add(name)
            room = _NAMED_PYTHON_BYTES if name.endswith(".py") else _NAMED_BYTES
            if is_folder:
                self._add(name, _listing(self.workspace, path))
            else:
                self._add(name, _beginning(self.workspace, path, room)[0])

    def _name(self, path: str) -> tuple[str, bool]:
        """The path's name in the workspace, with a slash for a folder, and whether it is a folder."""
        real = self.workspace.resolve(path)
        is_folder = real.is_dir()
        return self.workspace.name(real) + ("/" if is_folder else ""), is_folder

    def _add(self, name: str, text: str) -> None:
        self.attached_names.add(name)
        self.result.attachments.append(Attachment(name, text))


def named_paths(question: str, *, folders: Path | None = None) -> Iterator[str]:
    """The words of a question that may be paths, or that are names of folders in `folders`."""
    folder_names, suffixes = set[str](), set[str]()
    if folders:
        suffixes = {suffix.lower() for suffix in _SUFFIX_PATTERN.findall(question)}
        with suppress(OSError):
            folder_names = {entry.name for entry in os.scandir(folders) if entry.is_dir()}
    opening_signs = _NAME_SIGNS.replace(".", "")
    words = (word.rstrip(_NAME_SIGNS).lstrip(opening_signs) for word in question.split())
    names = [
        word
        for word in dict.fromkeys(itertools.islice(words, _MAX_WORDS))
        if _PATH_CHARACTER.search(word) or word in folder_names
    ]
    if not suffixes.isdisjoint(_FILE_SUFFIXES):
        names.append(".")
    return itertools.islice(names, _MAX_NAMES)


def without_code(question: str) -> str:
    """The question with code replaced by blanks, because `@` in code begins a decorator."""
    return _CODE.sub(lambda code: " " * len(code.group()), question)


def _image(workspace: Workspace, path: str, name: str) -> Image | None:
    """The image in a file; None if it is something else. Raises ToolError if only its name is that of one."""
    with workspace.reading(path) as (file, _):
        image = read_image(file, name)
    if image is None and must_be_image(name):
        raise ToolError(f"{name} is not a PNG, JPEG, GIF or WebP image.")
    return image


def _beginning(workspace: Workspace, path: str, room: int) -> tuple[str, str]:
    """A file's text, cut to the room, and which part it is if it is cut; raises ToolError."""
    if room <= 0:
        raise ToolError(f"the question already has {ALL_BYTES:,} bytes of files.")
    head = workspace.read_head(path, min(FILE_BYTES, room))
    if head.size <= head.length:
        return head.text, ""
    part = f"the first {head.length:,} of {head.size:,} bytes"
    return f"{head.text}\n[cut: {part}]", part


def _listing(workspace: Workspace, path: str) -> str:
    with workspace.folder(path) as (descriptor, _):
        entries = list(itertools.islice(walk(descriptor, _FOLDER_DEPTH), _MAX_ENTRIES + 1))
    lines: list[str] = []
    for entry in entries:
        suffix = "  (not entered)" if entry.name in CLOSED else ""
        lines.append(f"{entry.path}/{suffix}" if entry.is_folder else entry.path)
    more = ["[there is more]"] if len(lines) > _MAX_ENTRIES else []
    text = "\n".join([*sorted(lines)[:_MAX_ENTRIES], *more]) or "(an empty folder)"
    return text.encode("utf-8", "backslashreplace").decode()  # names may contain invalid bytes
