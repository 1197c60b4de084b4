"""The workspace folder: confined access to its files, and the walk over them."""

import difflib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import ToolError, UsageError
from ecoshell.tools import ResultSize
from ecoshell.tools.background import BackgroundCommands
from ecoshell.tools.undo_log import FileState, UndoLog
from ecoshell.worker import checkpoint, in_worker

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO created after the check must not block.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
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
"""Never listed: the history of a project."""
CLOSED = frozenset(
    {"node_modules", ".venv", ".tox", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Listed but not entered: large generated content."""
_NEAREST_WALK = 5_000
_PATH_CHARS = 200
"""Maximum length of the workspace path in a message."""
_FIX = "Use --workspace with an existing folder."
_NEAREST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's text with its original line ends."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a text file; `length` and `size` count bytes."""

    text: str
    length: int
    size: int


def workspace_folder(path: Path | None = None) -> Path:
    """Return the real path of a folder, by default the current one; raises UsageError if that was deleted."""
    try:
        return Path(os.path.realpath(path or Path.cwd()))
    except OSError as error:
        raise UsageError(
            "The current folder no longer exists.", fix="Change to another folder."
        ) from error


class Workspace:
    """Confined access to a folder; refuses all paths that lead out of it, by `..`, symbolic links or otherwise.

    A path is resolved first and then walked from the root descriptor without following links, so that a link created
    between check and use is refused too. Raises UsageError if `root` is not a folder.
    """

    def __init__(self, root: Path, *, undo: UndoLog | None = None) -> None:
        """`undo` saves files before they are written."""
        self._undo = undo
        self.also_readable: tuple[Path, ...] = ()
        """Real paths of further folders, whose files can be read by their absolute path."""
        self.result = ResultSize()
        self.background = BackgroundCommands()
        self.root = Path(os.path.realpath(root))
        try:
            with os.scandir(self.root):
                pass
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"The workspace {root} is not a folder.", fix=_FIX) from None
        except OSError as error:
            name = str(root)[:_PATH_CHARS]
            raise UsageError(
                f"The workspace {name} cannot be used: {error.strerror}.", fix=_FIX
            ) from error

    def __reduce__(self) -> tuple[type["Workspace"], tuple[Path]]:
        """Pickle for a worker process, which writes nothing and needs no undo log."""
        return Workspace, (self.root,)

    def resolve(self, path: str) -> Path:
        """Return the real path of `path`, which may be relative or absolute and need not exist.

        Raises ToolError if it is outside the workspace.
        """
        if not path.strip():
            raise ToolError(
                "The path is empty: give one relative to the workspace, such as README.md."
            )
        if "\0" in path:
            raise ToolError("A path cannot contain a NUL character.")
        with _system_errors(path):
            real = Path(os.path.realpath(self.root / path))
        if not real.is_relative_to(self.root):
            raise ToolError(
                f"{path} is outside the workspace: only paths inside {self.root} can be used."
            )
        return real

    def name(self, real: Path) -> str:
        """Return a resolved path relative to the workspace, for display."""
        return real.relative_to(self.root).as_posix()

    @contextmanager
    def folder(self, path: str) -> Generator[tuple[int, str]]:
        """Open a folder; yields its descriptor and its display name ("." for the workspace)."""
        real = self.resolve(path)
        with self._errors(path), self._descend(real) as descriptor:
            yield descriptor, self.name(real)

    @contextmanager
    def reading(self, path: str) -> Generator[tuple[BinaryIO, str]]:
        """Open a regular file for reading; also yields its display name."""
        for folder in self.also_readable if path.startswith("/") else ():
            if Path(os.path.realpath(path)).is_relative_to(folder):
                with Workspace(folder).reading(path) as (file, _):
                    yield file, path
                return
        real = self.resolve(path)
        with self._errors(path), self._descend(real.parent) as parent:
            self._require_regular(real, parent)
            file = os.fdopen(os.open(real.name, _READ, dir_fd=parent), "rb")
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ToolError(f"{path} is not a regular file.")
            yield file, self.name(real)

    def read_text(self, path: str, max_bytes: int) -> FileText:
        """Read a text file of at most `max_bytes`; raises ToolError for binary and larger files."""
        with self.reading(path) as (file, name):
            data = file.read(max_bytes + 1)  # `stat` is unreliable: files in /proc report size 0.
            if len(data) > max_bytes:
                size = max(os.fstat(file.fileno()).st_size, len(data))
                raise ToolError(
                    f"{name} is too large: {size} bytes, and at most {max_bytes} are read."
                )
        return FileText(name, decoded(data, name))

    def read_head(self, path: str, max_bytes: int) -> FileHead:
        """Read the first `max_bytes` of a text file, cut between characters; raises ToolError for binary files."""
        with self.reading(path) as (file, name):
            data = file.read(max_bytes + 1)
            size = max(os.fstat(file.fileno()).st_size, len(data))
        if len(data) <= max_bytes:
            return FileHead(decoded(data, name), len(data), len(data))
        head = data[:max_bytes]
        while head and data[len(head)] & 0xC0 == 0x80:  # The next byte continues a character.
            head = head[:-1]
        return FileHead(decoded(head, name), len(head), size)

    def write_text(self, path: str, text: str) -> str:
        """Write a file atomically, creating folders and keeping the mode; returns its display name."""
        try:
            return self.write_bytes(path, text.encode())
        except UnicodeEncodeError as error:
            raise ToolError(
                f"The text cannot be written as UTF-8: half a surrogate pair at {error.start}."
            ) from error

    def write_bytes(self, path: str, data: bytes) -> str:
        """Write bytes like `write_text`."""
        real = self.resolve(path)
        if real == self.root:
            raise ToolError(f"{path} is the workspace itself, not a file.")
        inside = (folder for folder in reversed(real.parents) if folder.is_relative_to(self.root))
        folders = tuple(self.name(folder) for folder in inside if not folder.exists())
        with self._errors(path), self._descend(real.parent, create=True) as parent:
            mode = old = None
            with suppress(FileNotFoundError):
                mode = stat.S_IMODE(self._require_regular(real, parent).st_mode)
                if not os.access(real.name, os.W_OK, dir_fd=parent, effective_ids=True):
                    raise PermissionError(errno.EACCES, "it is read-only")
            if self._undo is not None:
                if mode is not None:
                    # One byte more than the limit shows that the file is too large.
                    with os.fdopen(os.open(real.name, _READ, dir_fd=parent), "rb") as file:
                        old = file.read(self._undo.file_bytes + 1)
                self._undo.keep(
                    FileState(str(self.root), self.name(real), old, mode, folders), data
                )
            self._replace(real, data, mode, parent)
        return self.name(real)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist; raises ToolError for other kinds of files."""
        try:
            with self.reading(path) as (file, _):
                return file.read()
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise

    def put_back(self, path: str, data: bytes, mode: int | None) -> None:
        """Restore content and mode of a file without saving its current state."""
        real = self.resolve(path)
        with self._errors(path), self._descend(real.parent, create=True) as parent:
            self._replace(real, data, mode, parent)

    def remove(self, path: str, *, folder: bool = False) -> None:
        """Remove a file or an empty folder, if it exists."""
        real = self.resolve(path)
        with self._errors(path), suppress(FileNotFoundError), self._descend(real.parent) as parent:
            if not folder:
                os.unlink(real.name, dir_fd=parent)
                return
            try:
                os.rmdir(real.name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise

    def exists(self, path: str) -> bool:
        """Return whether the path exists; raises ToolError for invalid paths."""
        with _system_errors(path):
            return self.resolve(path).exists()

    def _replace(self, real: Path, data: bytes, mode: int | None, parent: int) -> None:
        """Replace a file atomically; `mode` None uses the umask.

        The replacement is readable by its owner only until it is complete.
        """
        temporary = f".{secrets.token_hex(8)}.part"
        with nullcontext() if self._undo is None else self._undo.writing(real.parent, temporary):
            descriptor = os.open(
                temporary, _CREATE, 0o666 if mode is None else 0o600, dir_fd=parent
            )
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    if mode is not None:
                        rights = _copy_owner(file.fileno(), real.name, mode, parent)
                        os.fchmod(file.fileno(), rights)
                os.replace(temporary, real.name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    def _require_regular(self, real: Path, parent: int) -> os.stat_result:
        if real == self.root:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        status = os.stat(real.name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            hint = "; use list_files to see its content" if stat.S_ISDIR(status.st_mode) else ""
            raise ToolError(f"{self.name(real)} is {kind}, not a file{hint}.")
        return status

    @contextmanager
    def _descend(self, folder: Path, *, create: bool = False) -> Generator[int]:
        """Open a resolved folder component by component without following links.

        The parent of the workspace yields the workspace itself.
        """
        descriptor = os.open(self.root, _DIRECTORY)
        try:
            for part in () if folder == self.root.parent else folder.relative_to(self.root).parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                child = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _errors(self, path: str) -> Generator[None]:
        """Convert system errors to ToolError; adds the nearest names for a missing file."""
        try:
            with _system_errors(path):
                yield
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError) and (near := self._nearest(path)):
                raise ToolError(f"{error.message} Nearest: {', '.join(near)}.") from error.__cause__
            raise

    def _nearest(self, path: str) -> list[str]:
        target = Path(path).name.casefold()
        by_name: dict[str, str] = {}
        with self._descend(self.root) as descriptor:
            for entry in itertools.islice(walk(descriptor), _NEAREST_WALK):
                if entry.is_file or entry.is_folder:
                    by_name.setdefault(entry.name.casefold(), entry.path)
        near = [name for name in by_name if Path(name).stem == target]
        with suppress(ToolError):  # Comparing thousands of long names can time out.
            near += in_worker(
                difflib.get_close_matches, target, list(by_name), seconds=_NEAREST_SECONDS
            )
        return [by_name[name] for name in dict.fromkeys(near)][:3]


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry of a walk; `path` is relative to its start, `folder` the open descriptor of its folder."""

    path: str
    name: str
    folder: int
    status: os.stat_result
    depth: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder and not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.st_mode)

    def open(self) -> BinaryIO:
        """Open the entry for reading before the walk continues; raises OSError if it was replaced by a link."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.fdopen(os.open(self.name, flags, dir_fd=self.folder), "rb")

    def target(self) -> str:
        """Return the target of a symbolic link; empty for other entries."""
        is_link = stat.S_ISLNK(self.status.st_mode)
        return os.readlink(self.name, dir_fd=self.folder) if is_link else ""


def walk(
    descriptor: int, depth: int | None = None, omits: Callable[[str], bool] = lambda path: False
) -> Iterator[Entry]:
    """Yield the entries below an open folder by name, at most `depth` levels deep; links are not followed."""
    for base, folders, files, parent in os.fwalk(".", dir_fd=descriptor):
        level = 0 if base == "." else base.count("/")
        for name in sorted(set(folders + files) - HIDDEN):
            checkpoint()
            if omits(f"{base}/{name}"):
                folders[:] = [folder for folder in folders if folder != name]
                continue
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:  # deleted since the folder was read
                continue
            path = f"{base}/{name}".removeprefix("./")
            yield Entry(path, name, parent, status, level + 1)
        inner = depth is None or level + 1 < depth
        folders[:] = sorted(set(folders) - HIDDEN - CLOSED) if inner else []


def decoded(data: bytes, name: str) -> str:
    """Decode a file's bytes; raises ToolError if they are not UTF-8 text."""
    if b"\0" in data:
        raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{name} is not UTF-8 text (byte {error.start} cannot be decoded)."
        ) from error


def _copy_owner(descriptor: int, name: str, mode: int, parent: int) -> int:
    """Copy owner and group of the replaced file; returns the mode, without group rights if that failed."""
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
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the disk is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EFBIG: "the file would become too large for the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.ELOOP: "it leads through a loop of symbolic links, or through a link that was just created",
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
        raise ToolError(
            "The path contains an unpaired surrogate, which file names cannot contain."
        ) from error
