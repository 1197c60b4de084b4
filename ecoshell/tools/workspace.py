"""The folder tools may touch, and the only way to its files; what they were before each turn; what git says of it."""

import asyncio
import difflib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from ecoshell.errors import StoreError, ToolError, UsageError
from ecoshell.paths import is_special, make_private
from ecoshell.tools import ResultSize
from ecoshell.worker import checkpoint, in_worker

# -- what files were


TEMPORARY = ".*.part"
"""How files are called that are being written, and the notes of them."""
_INDEX = "index.jsonl"
_OUTDATED = 30 * 86_400.0
"""Seconds after which the copies of a session that nobody used are removed."""


@dataclass(frozen=True, slots=True)
class Before:
    """A file as it was before a write; `data` is None when there was none."""

    root: str
    """The workspace's folder."""
    path: str
    """Relative to the workspace."""
    data: bytes | None
    mode: int | None
    folders: tuple[str, ...] = ()
    """Folders the write makes, relative to the workspace, outermost first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One write as it is kept; `copy` is empty for a file that was not there, and when the turn wrote to it before."""

    root: str
    path: str
    existed: bool
    mode: int | None
    copy: str
    after: str
    """The digest of what was written."""
    folders: tuple[str, ...] = ()
    lost: str = ""
    """Why there is no copy, although one is needed."""
    found: str = ""
    """The digest of what the write replaced; empty where nothing was there."""


class UndoLog:
    """What files were before the last turns of each session changed them, so that one can be undone after a kill, too.

    One folder for a session, one in it for a turn of one process: two shells that go on with the same session count
    their turns alike. In it `index.jsonl` has a line for each write, in order, and each numbered file beside it holds
    what a file was before the turn's first write to it. Both are written before the file itself, for their owner alone.
    Copies are kept within bounds; every method may be called from any thread.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owner: str = "",
        turns: int = 20,
        file_bytes: int = 10_000_000,
        total_bytes: int = 200_000_000,
    ) -> None:
        """`turns` and `total_bytes` count for one session; a file over `file_bytes` is not kept.

        No two processes that may talk in one session have the same `owner`.
        """
        self._folder = folder
        self._owner = owner
        self._turns = turns
        self.file_bytes = file_bytes
        """The size of the largest file that is kept."""
        self._total_bytes = total_bytes
        self._lock = threading.Lock()
        self._session = ""
        self._copies = ""
        self._known: dict[str, str] = {}
        """Files of the turn of the moment, each with why its first state is lost; empty where it is kept."""
        self._lost: list[str] = []

    def enter(self, session: str, turn: int) -> str:
        """From now on writes belong to this turn of this session; gives the name its copies are found by."""
        with self._lock:
            self._session, self._copies = session, f"{turn}.{self._owner}" if self._owner else str(turn)
            self._known, self._lost = {}, []
            return self._copies

    def keep(self, before: Before, after: bytes) -> None:
        """Keep what a file is before `after` is written to it; what cannot be kept is said by `take_lost`."""
        with self._lock:
            if not self._session:  # a workspace that is used outside a session
                return
            try:
                self._keep(before, digest(after))
            except OSError as error:
                why = f"no copy could be kept ({error.strerror or error})"
                if not self._known.get(before.path):
                    self._lost.append(f"/undo will not restore {before.path}: {why}.")
                self._known[before.path] = why

    @contextmanager
    def writing(self, folder: Path, temporary: str) -> Generator[None]:
        """While it lasts, a temporary file stands in the folder that `sweep` removes should this process be killed."""
        note, descriptor = self._folder / temporary, None
        try:
            if self._session:
                with suppress(OSError):  # nothing can be kept there, which `keep` has said
                    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    os.write(descriptor, os.fsencode(folder))
            yield
        finally:
            if descriptor is not None:
                note.unlink(missing_ok=True)
                os.close(descriptor)

    def sweep(self) -> None:
        """Remove the temporary files that killed processes have left in workspaces."""
        for note in self._folder.glob(TEMPORARY) if self._folder.is_dir() else ():
            with suppress(OSError), note.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the process that writes there lives
                folder = os.fsdecode(file.read())
                if folder:
                    Path(folder, note.name).unlink(missing_ok=True)
                note.unlink(missing_ok=True)

    def take_lost(self) -> list[str]:
        """What /undo will not be able to restore, said once."""
        with self._lock:
            said, self._lost = self._lost, []
            return said

    def writes(self, session: str, copies: str) -> tuple[Kept, ...]:
        """The writes of a turn, in order; none when it made none or its copies are no longer there.

        A line that was being written when the process was killed, or that is damaged, is left out.
        """
        file = self._place(session, copies) / _INDEX
        try:
            lines = b"" if is_special(file) else file.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}.", kept="Nothing was undone.") from error
        found: list[Kept] = []
        for line in lines.splitlines():
            try:
                record: dict[str, Any] = json.loads(line)
                kept = replace(Kept(**record), folders=tuple(map(str, record["folders"])))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if {*map(type, (kept.root, kept.path, kept.copy, kept.after, kept.lost, kept.found))} == {str}:
                found.append(kept)
        return tuple(found)

    def copy(self, session: str, copies: str, kept: Kept) -> bytes:
        """What the file held; raises OSError when the copy is gone."""
        return (self._place(session, copies) / kept.copy).read_bytes()

    def forget(self, session: str, copies: str = "") -> None:
        """Remove the copies of one turn, or all of a session, as when it is deleted."""
        shutil.rmtree(self._place(session, copies), ignore_errors=True)

    def _keep(self, before: Before, after: str) -> None:
        place = self._place(self._session, self._copies)
        if not self._known or not place.is_dir():
            make_private(self._folder)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            oldest = time.time() - _OUTDATED
            for folder in self._folder.iterdir():
                if folder.name != self._session and folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
            earlier = self._turn_folders(place.parent)
            for folder in earlier[: max(0, len(earlier) - self._turns + 1)]:
                shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
        lost, copy = self._known.get(before.path, ""), ""
        if before.path not in self._known and before.data is not None:
            lost = self._too_large(place, len(before.data))
            copy = "" if lost else str(len(self._known) + 1)
            if copy:
                try:
                    _add(place / copy, before.data)
                except OSError:
                    (place / copy).unlink(missing_ok=True)
                    raise
        there, found = before.data is not None, "" if before.data is None else digest(before.data)
        kept = Kept(before.root, before.path, there, before.mode, copy, after, before.folders, lost, found)
        _add(place / _INDEX, b"\n" + json.dumps(asdict(kept)).encode() + b"\n")  # before it may stand half a line
        if lost and before.path not in self._known:
            self._lost.append(f"/undo will not restore {before.path}: {lost}.")
        self._known[before.path] = lost

    def _too_large(self, place: Path, size: int) -> str:
        """Why a copy of this size cannot be kept; makes room by removing those of the oldest turns."""
        if size > self.file_bytes:
            return f"it was larger than {self.file_bytes:,} bytes"
        folders = self._turn_folders(place.parent)
        sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
        used = sum(sizes.values())
        for folder in folders:
            if used + size <= self._total_bytes:
                return ""
            if folder != place:
                shutil.rmtree(folder, ignore_errors=True)
                used -= sizes[folder]
        return "" if used + size <= self._total_bytes else "too much was changed in this turn to keep all of it"

    def _turn_folders(self, session: Path) -> Sequence[Path]:
        """The folders of the session's turns, oldest first."""
        numbered = [(one.name.partition(".")[0], one) for one in session.iterdir()]
        return [one for _, one in sorted((int(turn), one) for turn, one in numbered if turn.isdecimal())]

    def _place(self, session: str, copies: str) -> Path:
        return self._folder / session / copies


def digest(data: bytes) -> str:
    """What tells one content from another."""
    return hashlib.sha256(data).hexdigest()


def _add(file: Path, data: bytes) -> None:
    """Add bytes to a file, which is its owner's alone from before the first."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as opened:
        opened.write(data)


# -- the folder


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO put there at the last moment does not block
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link that leads nowhere",
}
HIDDEN = frozenset({".git", ".hg", ".svn"})
"""Never shown: they hold the history of a project, not the project."""
CLOSED = frozenset({"node_modules", ".venv", ".tox", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
"""Shown, but not entered: what other programs put there would bury the rest."""
_NEAREST_WALK = 5_000
_SHOWN = 200
"""Characters of a workspace's path in a message."""
_ANOTHER = "Give an existing folder with --workspace."
_NEAREST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's text as it stands on disk (line ends kept)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file as text; `taken` and `size` count bytes."""

    text: str
    taken: int
    size: int


def workspace_folder(given: Path | None = None) -> Path:
    """The one path of the folder given, or of the current one, however named; raises UsageError where that is gone."""
    try:
        return Path(os.path.realpath(given or Path.cwd()))
    except OSError as error:
        raise UsageError("The current folder is not there any more.", fix="Change to another folder.") from error


class Workspace:
    """A folder and what is below it; every path is refused that leads out of it, by `..`, a symbolic link or otherwise.

    A path is resolved first and then walked from the folder's own descriptor without following any link, so that a link
    put in place between the check and the use is refused too. Raises UsageError when `root` is not a folder.
    """

    def __init__(self, root: Path, *, undo: UndoLog | None = None) -> None:
        """`undo` keeps what files were before they are written."""
        self._undo = undo
        self.result = ResultSize()
        """How long results of the tools that work here may be."""
        self.root = Path(os.path.realpath(root))
        try:
            with os.scandir(self.root):
                pass
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"The workspace {root} is not a folder.", fix=_ANOTHER) from None
        except OSError as error:
            shown = str(root)[:_SHOWN]
            raise UsageError(f"The workspace {shown} cannot be used: {error.strerror}.", fix=_ANOTHER) from error

    def __reduce__(self) -> tuple[type["Workspace"], tuple[Path]]:
        """The same folder in a worker process, where nothing is written and so nothing kept of it."""
        return Workspace, (self.root,)

    def resolve(self, path: str) -> Path:
        """The real, absolute path inside the workspace that `path` (relative to it, or absolute) stands for.

        It need not exist. Raises ToolError when it lies outside.
        """
        if not path.strip():
            raise ToolError("The path is empty: give one relative to the workspace, such as README.md.")
        if "\0" in path:
            raise ToolError("A path cannot contain a NUL character.")
        with _system_errors(path):
            real = Path(os.path.realpath(self.root / path))
        if not real.is_relative_to(self.root):
            raise ToolError(f"{path} is outside the workspace: only paths inside {self.root} can be used.")
        return real

    def name(self, real: Path) -> str:
        """A resolved path as it is shown: relative to the workspace."""
        return real.relative_to(self.root).as_posix()

    @contextmanager
    def folder(self, path: str) -> Generator[tuple[int, str]]:
        """Open a folder: its descriptor and its shown name ("." for the workspace)."""
        real = self.resolve(path)
        with self._told(path), self._descend(real) as descriptor:
            yield descriptor, self.name(real)

    @contextmanager
    def reading(self, path: str) -> Generator[tuple[BinaryIO, str]]:
        """Open a regular file to read bytes from; also yields its shown name."""
        real = self.resolve(path)
        with self._told(path), self._descend(real.parent) as parent:
            self._require_regular(real, parent)
            file = os.fdopen(os.open(real.name, _READ, dir_fd=parent), "rb")
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ToolError(f"{path} is not a regular file.")
            yield file, self.name(real)

    def read_text(self, path: str, max_bytes: int) -> FileText:
        """The whole text of a file of at most `max_bytes`; raises ToolError for binary and for larger files."""
        with self.reading(path) as (file, name):
            data = file.read(max_bytes + 1)  # read, not asked of stat: files in /proc say they are empty
            if len(data) > max_bytes:
                size = max(os.fstat(file.fileno()).st_size, len(data))
                raise ToolError(f"{name} is too large: {size} bytes, and at most {max_bytes} are read.")
        return FileText(name, decoded(data, name))

    def read_head(self, path: str, max_bytes: int) -> FileHead:
        """The first `max_bytes` of a text file, cut between characters; raises ToolError for a binary file."""
        with self.reading(path) as (file, name):
            data = file.read(max_bytes + 1)
            size = max(os.fstat(file.fileno()).st_size, len(data))
        if len(data) <= max_bytes:
            return FileHead(decoded(data, name), len(data), len(data))
        whole = data[:max_bytes]
        while whole and data[len(whole)] & 0xC0 == 0x80:  # the next byte continues a character
            whole = whole[:-1]
        return FileHead(decoded(whole, name), len(whole), size)

    def write_text(self, path: str, text: str) -> str:
        """Write a file whole or not at all, making folders as needed and keeping the mode; returns its shown name."""
        try:
            return self.write_bytes(path, text.encode())
        except UnicodeEncodeError as error:
            raise ToolError(f"The text cannot be written as UTF-8: half a surrogate pair at {error.start}.") from error

    def write_bytes(self, path: str, data: bytes) -> str:
        """The same of what is no text."""
        real = self.resolve(path)
        if real == self.root:
            raise ToolError(f"{path} is the workspace itself, not a file.")
        above = [
            folder for folder in reversed(real.parents) if folder.is_relative_to(self.root) and not folder.exists()
        ]
        folders = tuple(map(self.name, above))  # which this makes
        with self._told(path), self._descend(real.parent, create=True) as parent:
            mode = held = None
            with suppress(FileNotFoundError):  # there is none yet
                mode = stat.S_IMODE(self._require_regular(real, parent).st_mode)
                if not os.access(real.name, os.W_OK, dir_fd=parent, effective_ids=True):
                    raise PermissionError(errno.EACCES, "it is read-only")
            if self._undo is not None:
                if mode is not None:  # of one too large to be kept only so much is read that this shows
                    with os.fdopen(os.open(real.name, _READ, dir_fd=parent), "rb") as file:
                        held = file.read(self._undo.file_bytes + 1)
                self._undo.keep(Before(str(self.root), self.name(real), held, mode, folders), data)
            self._replace(real, data, mode, parent)
        return self.name(real)

    def read_bytes(self, path: str) -> bytes | None:
        """The whole content of a file; None when there is none. Raises ToolError for anything but a regular file."""
        try:
            with self.reading(path) as (file, _):
                return file.read()
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise

    def put_back(self, path: str, data: bytes, mode: int | None) -> None:
        """Give a file the content and the mode it had; nothing is kept of what it is now."""
        real = self.resolve(path)
        with self._told(path), self._descend(real.parent, create=True) as parent:
            self._replace(real, data, mode, parent)

    def remove(self, path: str, *, folder: bool = False) -> None:
        """Remove a file, or a folder if nothing is in it; what is not there need not be removed."""
        real = self.resolve(path)
        with self._told(path), suppress(FileNotFoundError), self._descend(real.parent) as parent:
            if not folder:
                os.unlink(real.name, dir_fd=parent)
                return
            try:
                os.rmdir(real.name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise

    def exists(self, path: str) -> bool:
        """Whether anything is at the path; raises ToolError for what can be none."""
        with _system_errors(path):
            return self.resolve(path).exists()

    def _replace(self, real: Path, data: bytes, mode: int | None, parent: int) -> None:
        """Put a complete new file in the place of the old one; `mode` None leaves the mode to the umask.

        What takes the place of a file is its owner's alone until it is complete.
        """
        temporary = f".{secrets.token_hex(8)}.part"
        with nullcontext() if self._undo is None else self._undo.writing(real.parent, temporary):
            descriptor = os.open(temporary, _CREATE, 0o666 if mode is None else 0o600, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    if mode is not None:
                        os.fchmod(file.fileno(), _owned_alike(file.fileno(), real.name, mode, parent))
                os.replace(temporary, real.name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    def _require_regular(self, real: Path, parent: int) -> os.stat_result:
        if real == self.root:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        found = os.stat(real.name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
            hint = "; list_files shows what is in it" if stat.S_ISDIR(found.st_mode) else ""
            raise ToolError(f"{self.name(real)} is {kind}, not a file{hint}.")
        return found

    @contextmanager
    def _descend(self, folder: Path, *, create: bool = False) -> Generator[int]:
        """The descriptor of a resolved folder, reached one component at a time without following links.

        In the place of the one that the workspace itself is in, it is the workspace.
        """
        descriptor = os.open(self.root, _DIRECTORY)
        try:
            for part in () if folder == self.root.parent else folder.relative_to(self.root).parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _told(self, path: str) -> Generator[None]:
        """Turn what the system says into an observation; a missing file is told with the nearest names."""
        try:
            with _system_errors(path):
                yield
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError) and (near := self._nearest(path)):
                raise ToolError(f"{error.message} Nearest: {', '.join(near)}.") from error.__cause__
            raise

    def _nearest(self, path: str) -> list[str]:
        wanted = Path(path).name.casefold()
        by_name: dict[str, list[str]] = {}
        room = _NEAREST_WALK
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            names = sorted([*files, *folders])[:room]
            for name in names:
                by_name.setdefault(name.casefold(), []).append(self.name(Path(folder) / name))
            room -= len(names)
            if not room:
                break
        near = [name for name in by_name if Path(name).stem == wanted]
        with suppress(ToolError):  # thousands of long names take long to compare
            near += in_worker(difflib.get_close_matches, wanted, list(by_name), seconds=_NEAREST_SECONDS)
        there = (path for name in dict.fromkeys(near) for path in by_name[name] if (self.root / path).exists())
        return list(itertools.islice(there, 3))


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder; `path` is relative to where the walk began, `folder` the open descriptor of its folder."""

    path: str
    name: str
    folder: int
    status: os.stat_result
    depth: int
    is_folder: bool
    """Whether it is a folder itself, not a link to one."""
    is_file: bool
    """Whether it is a regular file."""

    def open(self) -> BinaryIO:
        """Open the entry for reading; valid only until the walk goes on. Raises OSError when it became a link."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.fdopen(os.open(self.name, flags, dir_fd=self.folder), "rb")

    def target(self) -> str:
        """Where a symbolic link points; empty for anything else."""
        return os.readlink(self.name, dir_fd=self.folder) if stat.S_ISLNK(self.status.st_mode) else ""


def walk(descriptor: int, depth: int | None = None) -> Iterator[Entry]:
    """Every entry below an open folder, at most `depth` levels down, in order of name; links are not followed."""
    for base, folders, files, here in os.fwalk(".", dir_fd=descriptor):
        level = 0 if base == "." else base.count("/")
        for name in sorted(set(folders + files) - HIDDEN):
            checkpoint()
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:  # gone since the folder was read
                continue
            is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
            yield Entry(f"{base}/{name}".removeprefix("./"), name, here, status, level + 1, is_folder, is_file)
        inner = depth is None or level + 1 < depth
        folders[:] = sorted(set(folders) - HIDDEN - CLOSED) if inner else []


def decoded(data: bytes, name: str) -> str:
    """The bytes of a file as text; raises ToolError when they are not UTF-8 text."""
    if b"\0" in data:
        raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{name} is not UTF-8 text (byte {error.start} cannot be decoded).") from error


def _owned_alike(descriptor: int, name: str, mode: int, parent: int) -> int:
    """Give a new file the owner and group of the one it replaces; the mode to set, which lets no other group read."""
    new = os.fstat(descriptor)
    try:
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return mode
    if (old.st_uid, old.st_gid) == (new.st_uid, new.st_gid):
        return mode
    try:
        os.fchown(descriptor, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
    except PermissionError:
        return mode & ~0o070
    return mode


_REASONS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the disk is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EFBIG: "the file would become too large for the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.ELOOP: "symbolic links lead in a circle, or one was put there just now",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a folder, not a file",
}


@contextmanager
def _system_errors(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise ToolError(f"{path}: {reason}.") from error
    except UnicodeEncodeError as error:
        raise ToolError("The path contains half a surrogate pair, which no file name can.") from error


# -- git


QUIET = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
"""A repository may name programs there; a look at it must not run them."""
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""No hook runs where no index is written, and nothing that is missing is fetched."""
_SETTINGS = ("config", "--show-scope", "--includes", "--name-only", "--list")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--", ".")


@dataclass(frozen=True, slots=True)
class GitState:
    """Where a repository stands."""

    branch: str
    """Empty while no branch is checked out."""
    changed: int | None
    """Paths below the folder that differ from the last commit, new folders as one; None where nobody could count."""
    subject: str
    """Of the last commit; empty before the first."""


async def git(root: Path, *arguments: str, seconds: float) -> str | None:
    """What a git command prints in this folder; None where there is no git, no repository, or no answer in time."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *QUIET, *arguments,
            cwd=root, stdin=nothing, stdout=pipe, stderr=nothing, env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return os.fsdecode(output) if process.returncode == 0 else None


async def state_of(root: Path, seconds: float) -> GitState | None:
    """The state of the repository that a folder is in; None where it is in none, or git does not say in time."""
    branch, subject, changed = await asyncio.gather(
        git(root, "branch", "--show-current", seconds=seconds),
        git(root, "log", "-1", "--format=%s", seconds=seconds),
        _changed(root, seconds),
    )
    return None if branch is None else GitState(branch.strip(), changed, (subject or "").strip())


async def _changed(root: Path, seconds: float) -> int | None:
    """How many paths differ; not asked where the repository has filters of its own, which would be run for it."""
    settings = await git(root, *_SETTINGS, seconds=seconds)
    named = (line.partition("\t") for line in (settings or "").splitlines())
    own = any(name.startswith("filter.") and scope not in ("system", "global") for scope, _, name in named)
    if settings is None or own:
        return None
    status = await git(root, *_STATUS, seconds=seconds)
    if status is None:
        return None
    entries = iter(status.split("\0")[:-1])
    count = 0
    for entry in entries:
        count += 1
        if entry[:1] in "RC":
            next(entries, None)  # the name it had before
    return count


_PLAIN_SETTINGS = re.compile(
    r"""core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol
        |safecrlf|quotepath|longpaths|untrackedcache|sharedrepository|abbrev)
    | remote\..*\.(url|pushurl|fetch|push|tagopt|prune|gh-resolved)
    | branch\..*\.(remote|merge|rebase|pushremote|description|vscode-merge-base|gh-merge-base)
    | user\.(name|email) | init\.defaultbranch | pull\.(rebase|ff) | push\.(default|autosetupremote|followtags)
    | fetch\.prune | rebase\.(autosquash|autostash|updaterefs) | merge\.(ff|conflictstyle) | commit\.gpgsign
    | rerere\.enabled | gc\.auto | color\.ui | extensions\.objectformat | lfs\.repositoryformatversion
    | diff\.(algorithm|renames|colormoved|mnemonicprefix|noprefix) | index\.version""",
    re.VERBOSE | re.DOTALL,
)
"""Settings of a repository that name nothing to be run."""
_HOOKLESS = frozenset([
    "status", "log", "show", "ls-files", "shortlog", "rev-parse", "grep", "cat-file", "ls-tree", "rev-list",
])  # fmt: skip
"""Commands of git that run no hook as long as they write no index."""
_SECONDS = 3.0


async def why_not_plain(root: Path, command: str) -> str:
    """What a repository has, as a sentence's end, that git may run for a command by its name; empty where nothing is.

    That are settings beyond the ordinary, hooks, and submodules, which have settings of their own.
    """
    settings, staged, hooks = await asyncio.gather(
        git(root, "config", "--show-scope", "--includes", "--name-only", "-z", "--list", seconds=_SECONDS),
        git(root, "ls-files", "--stage", "-z", ":/", seconds=_SECONDS),
        git(root, "rev-parse", "--git-path", "hooks", seconds=_SECONDS),
    )
    if settings is None or staged is None or hooks is None:
        return "git does not say what this repository may have it run"
    fields = settings.split("\0")
    for scope, name in zip(fields[::2], fields[1::2], strict=False):
        if scope not in ("system", "global", "command") and not _PLAIN_SETTINGS.fullmatch(name):
            return f"the repository's own setting {name} can have git run something"
    if re.search(r"(?:^|\0)160000 ", staged):
        return "the repository has submodules, whose settings can have git run something"
    if command not in _HOOKLESS and (hook := await asyncio.to_thread(_hook_in, root / hooks.rstrip("\n"))):
        return f"git may run the repository's hook {hook}"
    return ""


def _hook_in(folder: Path) -> str:
    """The name of a hook that can be run."""
    try:
        with os.scandir(folder) as entries:
            return next((each.name for each in entries if "." not in each.name and os.access(each, os.X_OK)), "")
    except OSError:
        return ""
