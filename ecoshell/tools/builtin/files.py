"""The tools list_files, read_file, write_file and edit_file."""

import contextlib
import difflib
import itertools
import os
import re
from dataclasses import dataclass
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.images import label, read_image
from ecoshell.messages import Observation
from ecoshell.secrecy import MARK
from ecoshell.tools import Subject, ToolOptions
from ecoshell.tools.diffs import line_count, unified
from ecoshell.tools.protection import Omissions
from ecoshell.tools.running import truncation_mark
from ecoshell.tools.workspace import CLOSED, Entry, FileText, Workspace, walk
from ecoshell.worker import in_worker

RESTORABLE = frozenset({"write_file", "edit_file"})
"""Tools whose effects /undo can restore."""
_MAX_LISTED = 200
_MAX_COUNTED = 20_000
_MARK_ROOM = 200
"""Characters reserved for the mark of a truncated result."""
_SLICE = 1 << 16
"""Characters whose line ends are counted at a time."""
_MAX_COMPARED_LINES = 5_000
"""Maximum number of lines that are compared to find the nearest one."""
_COMPARE_SECONDS = 2.0

FilePath = Annotated[str, "File, relative to the workspace.", Subject.PATH]


@dataclass(eq=False)
class FileTools:
    """The file tools of one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

    def list_files(
        self,
        path: Annotated[str, "Folder, relative to the workspace.", Subject.TREE] = ".",
        depth: Annotated[int, "Levels of folders to show."] = 2,
    ) -> Observation:
        """List the files and folders in a directory."""
        if depth < 1:
            raise ToolError(f"`depth` must be at least 1, not {depth}.")
        try:
            with self._workspace.folder(path) as (descriptor, name):
                omissions = Omissions(name)
                walked = itertools.islice(walk(descriptor, depth, omissions), _MAX_COUNTED + 1)
                entries = sorted((entry.depth, entry.path, _line(entry)) for entry in walked)
        except ToolError:
            with contextlib.suppress(ToolError), self._workspace.reading(path) as (file, name):
                return Observation(
                    f"{name}  {os.fstat(file.fileno()).st_size} bytes; it is a file, not a folder"
                )
            raise
        if not entries:
            return Observation(f"The folder {name} is empty.{omissions.note()}")
        lines, count = [line for _, _, line in entries[:_MAX_LISTED]], len(entries)
        if count > _MAX_LISTED:
            total = f"{count}" if count <= _MAX_COUNTED else f"more than {_MAX_COUNTED}"
            lines.append(f"[truncated: {_MAX_LISTED} of {total} entries shown]")
        return Observation("\n".join(lines) + omissions.note(), truncated=count > _MAX_LISTED)

    def read_file(
        self,
        path: FilePath,
        start_line: Annotated[int, "First line to show."] = 1,
        end_line: Annotated[int | None, "Last line to show; the end if left out."] = None,
    ) -> Observation:
        """Read a text file: open it and show what it says, or some of its lines."""
        with self._workspace.reading(path) as (opened, name):
            image = read_image(opened, name)
        if image is not None:
            return Observation(label(image), images=(image,))
        file = self._workspace.read_text(path, self._options.file_bytes)
        lines = line_count(file.text)
        if not lines:
            return Observation(f"The file {file.name} is empty.")
        if not 1 <= start_line <= lines:
            raise ToolError(
                f"{file.name} has lines 1 to {lines}; `start_line` {start_line} is not one of them."
            )
        last = lines if end_line is None else min(end_line, lines)
        if last < start_line:
            raise ToolError(f"`end_line` {end_line} is before `start_line` {start_line}.")
        # Show whole lines, as many as fit; a single line that does not fit is cut.
        text, characters = file.text, self._options.result.characters - _MARK_ROOM
        begin = _end_of_line(text, start_line - 1)
        end = len(text) if last == lines else _end_of_line(text, last, start_line - 1, begin)
        total = end - begin
        if total <= characters and last == lines:
            return Observation(text[begin:end])
        if total <= characters:
            mark = f"[lines {start_line} to {last} of {lines}; continue with start_line={last + 1}]"
            return Observation(f"{text[begin:end]}{mark}")
        cut = text.rfind("\n", begin, begin + characters) + 1
        excerpt = text[begin:cut] if cut else text[begin : begin + characters] + "\n"
        last_shown = start_line + max(text.count("\n", begin, cut), 1) - 1
        note = f" Lines {start_line} to {last_shown} of {lines}."
        note += f" Continue with start_line={last_shown + 1}." if last_shown < last else ""
        return Observation(
            f"{excerpt}{truncation_mark(min(len(excerpt), total), total)}{note}", truncated=True
        )

    def write_file(
        self,
        path: FilePath,
        content: Annotated[str, "The whole new text of the file.", Subject.CONTENT],
    ) -> Observation:
        """Write, create or save a text file, replacing what it held."""
        self._require_writable(path, content)
        existed, old_text = self._workspace.exists(path), self._text(path)
        name = self._workspace.write_text(path, content)
        size = f"{_lines(content)}, {len(content.encode())} bytes"
        changes = unified(name, old_text, content) if old_text is not None or not existed else ""
        return Observation(
            f"{name} {'replaced' if existed else 'created'}: {size}.", changes=changes
        )

    def edit_file(
        self,
        path: FilePath,
        old: Annotated[str, "The exact text to replace; it must occur exactly once."],
        new: Annotated[str, "The text to put in its place."],
    ) -> Observation:
        """Edit, change or fix a text file by replacing one exact piece of its text with another."""
        file, edited, position = self._edited(path, old, new)
        self._require_writable(path, edited)
        self._workspace.write_text(path, edited)
        line = file.text.count("\n", 0, position) + 1
        text = f"{file.name} edited at line {line}: {_lines(old)} replaced by {_lines(new)}."
        return Observation(text, changes=unified(file.name, file.text, edited))

    def preview_write(self, path: str, content: str) -> str:
        """Return the changes of write_file as a unified diff."""
        old_text = self._text(path)
        if old_text is None and self._workspace.exists(path):
            return ""
        return unified(self._workspace.name(self._workspace.resolve(path)), old_text, content)

    def preview_edit(self, path: str, old: str, new: str) -> str:
        """Return the changes of edit_file as a unified diff."""
        file, edited, _ = self._edited(path, old, new)
        return unified(file.name, file.text, edited)

    def _edited(self, path: str, old: str, new: str) -> tuple[FileText, str, int]:
        """Return the file, its text after the edit, and the position of the edit; raises ToolError."""
        if not old:
            raise ToolError(
                "`old` is empty: give the exact text to replace, or use write_file for a new file."
            )
        file = self._workspace.read_text(path, self._options.file_bytes)
        crlf_count = file.text.count("\r\n")
        if (
            crlf_count
            and "\r\n" not in old + new
            and (old not in file.text or crlf_count == file.text.count("\n"))
        ):
            # Models write \n, whatever the line ends of the file are.
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        position = file.text.find(old)
        if position < 0:
            raise ToolError(f"`old` does not occur in {file.name}.{_nearest_line(file.text, old)}")
        if file.text.find(old, position + 1) > 0:  # Occurrences may overlap.
            matches = itertools.islice(re.finditer(f"(?={re.escape(old)})", file.text), 5)
            lines = ", ".join(str(file.text.count("\n", 0, match.start()) + 1) for match in matches)
            raise ToolError(
                f"`old` occurs {max(2, file.text.count(old))} times in {file.name} (lines {lines}); "
                "include more of the surrounding text."
            )
        return file, file.text.replace(old, new), position

    def _text(self, path: str) -> str | None:
        """Return the current text of a file; None if it is binary, too large or missing."""
        try:
            return self._workspace.read_text(path, self._options.file_bytes).text
        except ToolError:
            return None

    def _require_writable(self, path: str, text: str) -> None:
        """Refuse a long text, and one with a masking mark, which would overwrite the file's key."""
        if len(text) > self._options.file_bytes:
            raise ToolError(
                f"The text is too long: {len(text)} characters; at most {self._options.file_bytes} bytes are written."
            )
        if MARK in text and MARK not in (self._text(path) or ""):
            raise ToolError(
                f"The text contains {MARK}, the mark of a hidden key. Nothing was written: change the lines around it "
                "with edit_file, or leave the key to the user."
            )


def _nearest_line(text: str, old: str) -> str:
    """Return a hint about the line that is most similar to the first line of `old`."""
    first_line = next((line for line in old.splitlines() if line.strip()), old)
    lines = [
        line.rstrip("\r") for line in text.split("\n", _MAX_COMPARED_LINES)[:_MAX_COMPARED_LINES]
    ]
    near: list[str] = []
    with contextlib.suppress(ToolError):  # Comparing long lines can time out.
        near = in_worker(difflib.get_close_matches, first_line, lines, 1, seconds=_COMPARE_SECONDS)
    return f" The nearest line is: {near[0]}" if near else " Use read_file to see its text."


def _line(entry: Entry) -> str:
    """Format an entry; names with control characters are quoted, so that none looks like two entries."""

    def quoted(path: str) -> str:
        return repr(path) if any(character < " " for character in path) else path

    name, target = quoted(entry.path), quoted(entry.target())
    if entry.is_folder:
        return f"{name}/" + ("  (not entered)" if entry.name in CLOSED else "")
    if target:
        return f"{name} -> {target}"
    return f"{name}  {entry.status.st_size} bytes" if entry.is_file else f"{name}  (not a file)"


def _end_of_line(text: str, line: int, passed: int = 0, position: int = 0) -> int:
    """Return the position after a line (from 1), given that `passed` lines end at `position`.

    Counts by slices, because one object per line of a large file would delay other threads.
    """
    while (count := passed + text.count("\n", position, position + _SLICE)) < line:
        passed, position = count, position + _SLICE
    for _ in range(line - passed):
        position = text.index("\n", position) + 1
    return position


def _lines(text: str) -> str:
    count = line_count(text)
    return "1 line" if count == 1 else f"{count} lines"
