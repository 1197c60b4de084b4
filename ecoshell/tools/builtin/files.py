"""Files: list_files, read_file, write_file, edit_file, search_text, count_text, json_query, and diffs of changes."""

import bisect
import codecs
import contextlib
import difflib
import io
import itertools
import json
import operator
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from ecoshell.errors import ToolError
from ecoshell.images import label, read_image
from ecoshell.messages import Observation
from ecoshell.secrecy import MARK
from ecoshell.tools import Subject, ToolOptions
from ecoshell.tools.running import clip, truncation_mark
from ecoshell.tools.workspace import CLOSED, Entry, FileText, Workspace, walk
from ecoshell.worker import checkpoint, in_worker

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


@dataclass(eq=False)
class FileTools:
    """The file tools of one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

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
        with self._workspace.reading(path) as (opened, name):
            image = read_image(opened, name)
        if image is not None:
            return Observation(label(image), images=(image,))
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
        text, characters = file.text, self._options.result.characters - _MARK_ROOM
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
        ends = file.text.count("\r\n")
        if ends and "\r\n" not in old + new and (old not in file.text or ends == file.text.count("\n")):
            # a model writes \n, whatever the file's line ends are
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = file.text.find(old) + 1
        if file.text.find(old, found) >= found > 0:  # also where one begins within another
            places = itertools.islice(re.finditer(f"(?={re.escape(old)})", file.text), 5)
            lines = ", ".join(str(file.text.count("\n", 0, place.start()) + 1) for place in places)
            raise ToolError(
                f"`old` occurs {max(2, file.text.count(old))} times in {file.name} (lines {lines}); "
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


_TEXTS = 8_000_000
"""Characters of both texts together; of larger ones only the lines are counted."""
_SECONDS = 3.0
_LINES = 400
"""Of one diff."""
_CHARACTERS = 40_000
_DIFF_LINE = 1_000
"""Characters of one line."""
_DIFFED = 2_000
"""Lines that are compared one with another; a larger change is shown as all of one text for all of the other."""
_PAIRS = 300_000
"""Equal lines, each of the old text with each of the new, among those compared: what difflib's time grows with."""

_CONTEXT = 3

Opcode = tuple[str, int, int, int, int]
"""A kind, and which lines of the old text it makes into which of the new, as difflib has it."""


def unified(name: str, before: str | None, after: str) -> str:
    """The diff from `before` (None: there was no file) to `after`; empty when they are the same.

    What is too large for it, or takes too long, is told by the number of its lines. May block.
    """
    if before == after:
        return ""
    head = [f"--- {'/dev/null' if before is None else f'a/{name}'}", f"+++ b/{name}"]
    if len(before or "") + len(after) <= _TEXTS:
        try:
            return in_worker(_hunks_shown, head, before or "", after, seconds=_SECONDS)
        except ToolError:
            pass
    # the lines between what both texts begin with and what both end with, of the one and of the other
    old, room = before or "", min(len(before or ""), len(after))
    start = _most(room, lambda size: old[:size] == after[:size])
    start = old.rfind("\n", 0, start) + 1
    tail = _most(room - start, lambda size: old[len(old) - size :] == after[len(after) - size :])
    removed, added = line_count(old[start : len(old) - tail]), line_count(after[start : len(after) - tail])
    return "\n".join((*head, f"[too large to show: +{added:,} −{removed:,} lines]"))


def _hunks_shown(head: Sequence[str], before: str, after: str) -> str:
    old, new = ([line.rstrip("\n") for line in io.StringIO(text, newline=None)] for text in (before, after))
    said = "only line ends changed" if old else "the file is empty"
    body = list(itertools.islice(_body(old, new), _LINES + 1)) or [f"\\ {said}"]
    shown = [line if len(line) <= _DIFF_LINE else f"{line[:_DIFF_LINE]}…" for line in body[:_LINES]]
    fits = sum(1 for length in itertools.accumulate(len(line) + 1 for line in shown) if length <= _CHARACTERS)
    cut = fits < len(body)
    return "\n".join((*head, *shown[:fits], *(["[truncated: the diff goes on]"] if cut else [])))


def _most(room: int, holds: Callable[[int], bool]) -> int:
    """The largest size up to `room` for which it holds, as for all smaller ones."""
    return bisect.bisect_left(range(room), True, key=lambda size: not holds(size + 1))


def line_count(text: str) -> int:
    """How many lines a text has; the last needs no end."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _body(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The hunks, line by line."""
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for kind, from_old, to_old, from_new, to_new in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[from_old:to_old])
            else:
                yield from (f"-{line}" for line in old[from_old:to_old])
                yield from (f"+{line}" for line in new[from_new:to_new])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Opcode]]:
    """Changes with the lines around them; only what lies between the first and the last change is compared."""
    head = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, old, new)))
    tail = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, reversed(old[head:]), reversed(new[head:]))))
    begin, behind = min(head, _CONTEXT), min(tail, _CONTEXT)
    start, end_old, end_new = head - begin, len(old) - tail + behind, len(new) - tail + behind
    counts = Counter(old[start:end_old])
    if max(end_old, end_new) - start > _DIFFED or sum(counts[line] for line in new[start:end_new]) > _PAIRS:
        changed = ("replace", head, end_old - behind, head, end_new - behind)
        around = (("equal", start, head, start, head), ("equal", end_old - behind, end_old, end_new - behind, end_new))
        yield [around[0], changed, around[1]]
        return
    matcher = difflib.SequenceMatcher(None, old[start:end_old], new[start:end_new], autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(kind, i + start, j + start, k + start, m + start) for kind, i, j, k, m in group]


def _range(start: int, stop: int) -> str:
    """Lines from `start` to before `stop`, counted from 1, as a hunk's head says them."""
    count = stop - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"


_SHOWN = 100
_LINE = 240
"""Characters of a line that are shown, and of them _BEFORE before the match where that stands further behind."""
_BEFORE = 80
_PATTERN = 1_000
_REGEX_SECONDS = 2.0
"""For one file; only a pattern that backtracks without end takes longer."""
_CHUNK = 1 << 16
"""Bytes or characters that are looked at before others get their turn."""
_SHORT = 1_500
"""Characters of a file that is shown whole where a search in it finds nothing."""
_REPEATED = 60
_NAMED = 5
"""Files that are named which were too large to be searched."""


@dataclass(eq=False)
class SearchTools:
    """Searching, counting and querying in one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

    def search_text(
        self,
        text: Annotated[str, "What to find; case is ignored unless it has a capital letter."],
        path: Annotated[str, "File or folder to search, relative to the workspace.", Subject.PATH] = ".",
        regex: Annotated[bool, "Whether `text` is a regular expression."] = False,
    ) -> Observation:
        """Search files for a word, text or pattern (find, grep) and show where it occurs."""
        if not 0 < len(text) <= _PATTERN:
            raise ToolError(f"`text` must have 1 to {_PATTERN} characters, not {len(text)}.")
        import regex as regexes  # it keeps a time limit, if not with every pattern

        flags = regexes.MULTILINE | (0 if any(map(str.isupper, text)) else regexes.IGNORECASE)
        sought = text.replace("\r\n", "\n")  # as in the files that are searched
        try:
            pattern = regexes.compile(sought if regex else regexes.escape(sought), flags)
        except (regexes.error, RecursionError) as error:
            raise ToolError(
                f"{text!r} is not a regular expression: {error}. Leave `regex` out to search for plain text."
            ) from error
        large: list[str] = []
        lines = list(itertools.islice(self._found(path, pattern, text, large), _SHOWN + 1))
        names = f"{', '.join(large[:_NAMED])}{' and others' if len(large) > _NAMED else ''}"
        unread = f"\n[not searched, as larger than {self._options.file_bytes:,} bytes: {names}]" if large else ""
        if not lines:
            instead = "; list_files shows what is there."
            if not self._workspace.resolve(path).is_dir():
                held = self._workspace.read_text(path, self._options.file_bytes).text
                instead = f", which holds:\n{held}" if len(held) <= _SHORT else "; read_file shows it."
            return Observation(f"No match for {text!r} in {path}{instead}{unread}")
        if len(lines) <= _SHOWN:
            return Observation("\n".join(lines) + unread)
        mark = f"[truncated: the first {_SHOWN} matching lines shown; search a folder or a rarer text]"
        return Observation("\n".join([*lines[:_SHOWN], mark]), truncated=True)

    def count_text(
        self,
        path: Annotated[str | None, "File to count, relative to the workspace.", Subject.PATH] = None,
        text: Annotated[str | None, "What to count in the file; without `path`, the text itself is counted."] = None,
    ) -> str:
        """Count the lines, words, characters and bytes of a file or a text: how many, how long, how often."""
        if path:
            count = _Count(text or "")
            decoder = codecs.getincrementaldecoder("utf-8")()
            with self._workspace.reading(path) as (file, name):
                try:
                    while data := file.read(_CHUNK):  # so that a file of any size takes little memory
                        checkpoint()
                        if b"\0" in data:
                            raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
                        count.size += len(data)
                        count.add(decoder.decode(data))
                    count.add(decoder.decode(b"", final=True))
                except UnicodeDecodeError as error:
                    raise ToolError(f"{name} is not UTF-8 text.") from error
            return f"{name}: {count}"
        if text is None:
            raise ToolError("Give `path` (a file) or `text`.")
        count = _Count(size=len(text.encode("utf-8", "surrogatepass")))
        for at in range(0, len(text), _CHUNK):
            checkpoint()
            count.add(text[at : at + _CHUNK])
        return str(count)

    def _found(self, path: str, pattern: Any, typed: str, large: list[str]) -> Iterator[str]:
        """The lines of a file, or of all files below a folder, that have a match, each once, with its place.

        `typed` is what the pattern was made of; files that are too large to be read are added to `large`.
        """
        if not self._workspace.resolve(path).is_dir():
            file = self._workspace.read_text(path, self._options.file_bytes)
            yield from _shown(file.name, file.text, pattern, typed)
            return
        with self._workspace.folder(path) as (descriptor, folder):
            for entry in walk(descriptor):
                if not entry.is_file:
                    continue
                try:
                    with entry.open() as opened:
                        data = opened.read(self._options.file_bytes + 1)
                except OSError:  # unreadable, or gone
                    continue
                name = entry.path if folder == "." else f"{folder}/{entry.path}"
                if b"\0" in data:  # it is binary
                    continue
                if len(data) > self._options.file_bytes:
                    large.append(name)
                    continue
                yield from _shown(name, data.decode(errors="replace"), pattern, typed)

    def json_query(
        self,
        query: Annotated[str, "A JMESPath expression over the data."],
        path: Annotated[str | None, "JSON file, relative to the workspace.", Subject.PATH] = None,
        text: Annotated[str | None, "JSON text, if not a file."] = None,
    ) -> str:
        """Query JSON data: get a field, key or value out of a JSON file or text."""
        if not path and not text:
            raise ToolError("Give either `path` (a JSON file) or `text`.")
        name, source = "The text", text or ""
        if path:
            file = self._workspace.read_text(path, self._options.file_bytes)
            name, source = file.name, file.text
        try:
            data = json.loads(source.removeprefix("\ufeff"))
        except json.JSONDecodeError as error:
            raise ToolError(f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
        except (RecursionError, ValueError) as error:  # nested too deeply, or a number of too many digits
            raise ToolError(f"{name} cannot be read as JSON: {error}.") from error
        if (found := _search(query, data)) is not None:
            return json.dumps(found, ensure_ascii=False)
        # the value of the only path that ends so, where it was asked for as if it stood at the top; else what there is
        named = [
            path for path in itertools.islice(_paths(data), _LOOKED_AT) if path.rpartition(".")[2] == query.strip()
        ]
        if len(named) == 1 and len(named[0]) <= _LONGEST_QUERY:
            told = f"But {named[0]} is {json.dumps(_search(named[0], data), ensure_ascii=False)}"
        else:
            paths = list(itertools.islice(_paths(data), _OUTLINED + 1))
            outline = [*paths[:_OUTLINED], *(["…"] if len(paths) > _OUTLINED else [])]
            told = f"{name} holds {clip(', '.join(outline), _OUTLINE)[0]}"
        return f"Nothing was found. {told}."


def _shown(name: str, text: str, pattern: Any, typed: str) -> Iterator[str]:
    line, counted, last_end = 0, 0, -1
    text = text.replace("\r\n", "\n")
    try:
        for match in pattern.finditer(text, timeout=_REGEX_SECONDS):
            checkpoint()
            start = match.start()
            if start <= last_end:  # a line is shown once, however often it matches
                continue
            if start == len(text) and text[-1:] in ("", "\n"):  # behind the last line there is none
                return
            line += text.count("\n", counted, start)
            counted = start
            begin = text.rfind("\n", 0, start) + 1
            end = text.find("\n", start)
            last_end = len(text) if end < 0 else end
            if min(match.end(), last_end) - begin > _LINE:  # of a long line the part with the match is shown
                begin = max(begin, start - _BEFORE)
            yield f"{name}:{line + 1}: {text[begin:last_end].strip()[:_LINE]}"
    except TimeoutError as error:
        raise ToolError(f"The pattern {typed!r} takes too long to match; use a simpler one.") from error


@dataclass
class _Count:
    """Running totals over the pieces of a text, which may be cut anywhere."""

    sought: str = ""
    """A text whose occurrences are counted too; empty for none."""
    occurrences: int = 0
    line_ends: int = 0
    words: int = 0
    characters: int = 0
    size: int = 0
    last: str = ""
    _rest: str = ""
    """The end of the last piece, in which an occurrence may begin."""

    def add(self, piece: str) -> None:
        if not piece:
            return
        self.line_ends += piece.count("\n")
        self.words += len(piece.split())
        if self.last and not self.last.isspace() and not piece[0].isspace():
            self.words -= 1  # one word, cut in two
        self.characters += len(piece)
        self.last = piece[-1]
        if self.sought:
            *found, rest = (self._rest + piece).split(self.sought)
            self.occurrences += len(found)
            self._rest = rest[max(0, len(rest) - len(self.sought) + 1) :]

    def __str__(self) -> str:
        lines = self.line_ends + (self.last not in ("", "\n"))
        counts = {"line": lines, "word": self.words, "character": self.characters, "byte": self.size}
        told = ", ".join(f"{number} {unit}{'' if number == 1 else 's'}" for unit, number in counts.items())
        if not self.sought:
            return told
        shown = self.sought if len(self.sought) <= _REPEATED else f"{self.sought[:_REPEATED]}…"
        return f"{told}; {shown!r} occurs {self.occurrences} time{'' if self.occurrences == 1 else 's'}"


_LONGEST_QUERY = 1_000
_OUTLINED = 20
"""Paths that are told, and _OUTLINE characters of them, where a query finds nothing."""
_OUTLINE = 500
_LOOKED_AT = 10_000
"""Paths among which one is looked for that ends as the query does."""
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _paths(data: Any) -> Iterator[str]:
    """The paths to all that is no object and no list, nearest first; of a list's items the first speaks for all."""
    waiting = deque([("@", data)])
    while waiting:
        path, data = waiting.popleft()
        if isinstance(data, dict) and data:
            for key, value in cast("dict[str, Any]", data).items():
                name = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
                waiting.append((name if path == "@" else f"{path}.{name}", value))
        elif isinstance(data, list) and data:
            items = cast("list[Any]", data)
            waiting.append(("[*]" if path == "@" else f"{path}[*]", items[0]))
        else:
            yield path


def _search(query: str, data: Any) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(query) > _LONGEST_QUERY:
        raise ToolError(f"`query` is too long: at most {_LONGEST_QUERY} characters.")
    expression = query.strip()
    if expression.startswith("$"):  # JSONPath's root, which is "@" here
        expression = expression[1:].removeprefix(".") or "@"
    try:
        return jmespath.search(expression, data)  # pyright: ignore[reportUnknownMemberType]
    except JMESPathError as error:
        raise ToolError(f"{query!r} is not a JMESPath query: {error}") from error
    except (TypeError, RecursionError) as error:
        raise ToolError(f"{query!r} cannot be applied to this data: {error}") from error
