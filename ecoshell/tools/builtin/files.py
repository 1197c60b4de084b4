"""Look at files and change them: list_files, read_file, write_file, edit_file."""

import contextlib
import difflib
import itertools
import os
import re
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.secrecy import MARK
from ecoshell.tools.base import Subject, ToolOptions
from ecoshell.tools.builtin.diff import line_count, unified
from ecoshell.tools.running import truncation_mark
from ecoshell.tools.workspace import CLOSED, Entry, FileText, Workspace, walk
from ecoshell.worker import in_worker

RESTORABLE = frozenset({"write_file", "edit_file"})
"""Tools whose effects are kept in the undo log."""
_LISTED = 200
_COUNTED = 20_000
_MARK_ROOM = 200
_SLICE = 1 << 16
"""Characters whose line ends are counted at a time."""
_COMPARED = 5_000
"""Lines looked at for the one that is nearest to a text, for _COMPARING seconds."""
_COMPARING = 2.0

FilePath = Annotated[str, "File, relative to the workspace.", Subject.PATH]


class FileTools:
    """The file tools of one workspace; each public method is a tool."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    def list_files(
        self,
        path: Annotated[str, "Folder, relative to the workspace.", Subject.PATH] = ".",
        depth: Annotated[int, "Levels of folders to show."] = 2,
    ) -> Observation:
        """List the files and folders in a directory."""
        if depth < 1:
            raise ToolError(f"`depth` must be at least 1, not {depth}.")
        try:
            with self._workspace.folder(path) as (descriptor, name):
                entries = itertools.islice(walk(descriptor, depth), _COUNTED + 1)
                shown = sorted((entry.depth, entry.path, _line(entry)) for entry in entries)
        except ToolError:
            with contextlib.suppress(ToolError), self._workspace.reading(path) as (file, name):
                return Observation(f"{name}  {os.fstat(file.fileno()).st_size} bytes; it is a file, not a folder")
            raise
        if not shown:
            return Observation(f"The folder {name} is empty.")
        lines = [line for _, _, line in shown[:_LISTED]]
        if len(shown) > _LISTED:
            total = f"{len(shown)}" if len(shown) <= _COUNTED else f"more than {_COUNTED}"
            lines.append(f"[truncated: {_LISTED} of {total} entries shown]")
        return Observation("\n".join(lines), truncated=len(shown) > _LISTED)

    def read_file(
        self,
        path: FilePath,
        start_line: Annotated[int, "First line to show."] = 1,
        end_line: Annotated[int | None, "Last line to show; the end if left out."] = None,
    ) -> Observation:
        """Read a text file: open it and show what it says, or some of its lines."""
        file = self._workspace.read_text(path, self._options.file_bytes)
        lines = line_count(file.text)
        if not lines:
            return Observation(f"The file {file.name} is empty.")
        if not 1 <= start_line <= lines:
            raise ToolError(f"{file.name} has lines 1 to {lines}; `start_line` {start_line} is not one of them.")
        last = lines if end_line is None else min(end_line, lines)
        if last < start_line:
            raise ToolError(f"`end_line` {end_line} is before `start_line` {start_line}.")
        # those lines that fit whole, and how to read on; one line that does not fit alone is cut
        text, characters = file.text, self._options.output_characters - _MARK_ROOM
        begin = _behind(text, start_line - 1)
        end = len(text) if last == lines else _behind(text, last, start_line - 1, begin)
        total = end - begin
        if total <= characters and last == lines:
            return Observation(text[begin:end])
        if total <= characters:  # a model that asked for ten lines is to know that there are more
            mark = f"[lines {start_line} to {last} of {lines}; go on with start_line={last + 1}]"
            return Observation(f"{text[begin:end]}{mark}")
        cut = text.rfind("\n", begin, begin + characters) + 1
        shown = text[begin:cut] if cut else text[begin : begin + characters] + "\n"
        until = start_line + max(text.count("\n", begin, cut), 1) - 1
        more = f" Lines {start_line} to {until} of {lines}."
        more += f" Go on with start_line={until + 1}." if until < last else ""
        return Observation(f"{shown}{truncation_mark(min(len(shown), total), total)}{more}", truncated=True)

    def write_file(
        self, path: FilePath, content: Annotated[str, "The whole new text of the file.", Subject.CONTENT]
    ) -> Observation:
        """Write, create or save a text file, replacing what it held."""
        self._require_writable(path, content)
        known, before = self._workspace.exists(path), self._text(path)
        name = self._workspace.write_text(path, content)
        size = f"{_lines(content)}, {len(content.encode())} bytes"
        changes = unified(name, before, content) if before is not None or not known else ""
        return Observation(f"{name} {'replaced' if known else 'created'}: {size}.", changes=changes)

    def edit_file(
        self,
        path: FilePath,
        old: Annotated[str, "The exact text to replace; it must occur exactly once."],
        new: Annotated[str, "The text to put in its place."],
    ) -> Observation:
        """Edit, change or fix a text file by replacing one exact piece of its text with another."""
        file, edited, place = self._edited(path, old, new)
        self._require_writable(path, edited)
        self._workspace.write_text(path, edited)
        line = file.text.count("\n", 0, place) + 1
        said = f"{file.name} edited at line {line}: {_lines(old)} replaced by {_lines(new)}."
        return Observation(said, changes=unified(file.name, file.text, edited))

    def preview_write(self, path: str, content: str) -> str:
        """What write_file would change, as a unified diff."""
        before = self._text(path)
        if before is None and self._workspace.exists(path):
            return ""
        return unified(self._workspace.name(self._workspace.resolve(path)), before, content)

    def preview_edit(self, path: str, old: str, new: str) -> str:
        """What edit_file would change, as a unified diff."""
        file, edited, _ = self._edited(path, old, new)
        return unified(file.name, file.text, edited)

    def _edited(self, path: str, old: str, new: str) -> tuple[FileText, str, int]:
        """The file, its text after the edit, and where in it the edit begins; raises ToolError."""
        if not old:
            raise ToolError("`old` is empty: give the exact text to replace, or use write_file for a new file.")
        file = self._workspace.read_text(path, self._options.file_bytes)
        if "\r\n" in file.text and old not in file.text:  # a model writes \n, whatever the file's line ends are
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = file.text.count(old)
        if found > 1:
            places = itertools.islice(re.finditer(re.escape(old), file.text), 5)
            lines = ", ".join(str(file.text.count("\n", 0, place.start()) + 1) for place in places)
            raise ToolError(
                f"`old` occurs {found} times in {file.name} (lines {lines}); "
                "give more of the text around the one meant."
            )
        if not found:
            wanted = next((line for line in old.splitlines() if line.strip()), old)
            near: list[str] = []
            with contextlib.suppress(ToolError):  # long lines take long to compare
                known = [line.rstrip("\r") for line in file.text.split("\n", _COMPARED)[:_COMPARED]]
                near = in_worker(difflib.get_close_matches, wanted, known, 1, seconds=_COMPARING)
            hint = f" The nearest line is: {near[0]}" if near else " Use read_file to see what it says."
            raise ToolError(f"`old` does not occur in {file.name}.{hint}")
        return file, file.text.replace(old, new), file.text.index(old)

    def _text(self, path: str) -> str | None:
        """What a file says now; None when it is no text, too long, or not there."""
        try:
            return self._workspace.read_text(path, self._options.file_bytes).text
        except ToolError:
            return None

    def _require_writable(self, path: str, text: str) -> None:
        """Refuse a text that is too long, or in which a mark stands where the file has a key, which would be lost."""
        if len(text) > self._options.file_bytes:
            raise ToolError(
                f"The text is too long: {len(text)} characters; at most {self._options.file_bytes} bytes are written."
            )
        if MARK in text and MARK not in (self._text(path) or ""):
            raise ToolError(
                f"The text has {MARK} in it, which stands for a key that is not shown. Nothing was written: change the "
                "lines around it with edit_file, or leave the key to the user."
            )


def _line(entry: Entry) -> str:
    """What is shown of an entry; a name with control characters is quoted, so that none passes for two entries."""
    paths = (str(entry.path), str(entry.target()))
    name, target = (repr(path) if any(character < " " for character in path) else path for path in paths)
    if entry.is_folder:
        return f"{name}/" + ("  (not entered)" if entry.name in CLOSED else "")
    if target:
        return f"{name} -> {target}"
    return f"{name}  {entry.status.st_size} bytes" if entry.is_file else f"{name}  (not a file)"


def _behind(text: str, lines: int, known: int = 0, at: int = 0) -> int:
    """Where so many lines have ended, in a text that has more; so many as are known end at a place.

    Counted by the slice: one object for each line of a large file would hold up all other threads.
    """
    while (there := known + text.count("\n", at, at + _SLICE)) < lines:
        known, at = there, at + _SLICE
    for _ in range(lines - known):
        at = text.index("\n", at) + 1
    return at


def _lines(text: str) -> str:
    count = line_count(text)
    return "1 line" if count == 1 else f"{count} lines"
