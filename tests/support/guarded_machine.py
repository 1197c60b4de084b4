"""A home folder with secrets, a process and listeners, and whether anything has reached or changed them."""

import ctypes
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from escapes import SECRET, SECRET_PATHS

_CREATE, _REMOVE = 0o1000 | 0o600, 0
_GUARDED = (
    ".git/hooks",
    ".git/config",
    ".git/modules",
    ".git/commondir",
    ".ecoshell",
    ".envrc",
    ".vscode",
)


class GuardedMachine:
    """What escapes aim at; lies outside the temporary folder, which the sandbox hides as a whole."""

    def __init__(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="ecoshell-test-", dir="/var/tmp"))
        self.home = self._base / "home"
        self.outside = self.home / "documents"
        self.workspace = self.home / "project"
        for name in SECRET_PATHS:
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{SECRET}\n")
        (self.home / ".ssh" / f"key-{SECRET}").touch()
        (self.home / ".bashrc").write_text("old\n")
        (self.outside / "empty").mkdir(parents=True)
        (self.outside / "f").write_text("old\n")
        for name in (
            ".git/hooks",
            ".git/modules/sub/hooks",
            ".git/objects",
            ".git/refs",
            ".vscode",
        ):
            (self.workspace / name).mkdir(parents=True, exist_ok=True)
        (self.workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
        for name in (".git/config", ".vscode/tasks.json", ".envrc"):
            (self.workspace / name).write_text("")
        with (self.home / ".ssh/id").open() as secret:
            self._victim = subprocess.Popen(
                [SECRET, "1000"],
                executable=shutil.which("sleep"),
                stdin=secret,
                cwd=self.home / ".ssh",
                env={"VICTIM_KEY": SECRET},
            )
        self._files = [
            Path(folder, f"ecoshell-secret-{self._victim.pid}") for folder in ("/dev/shm", "/tmp")
        ]
        for file in self._files:
            file.write_text(SECRET)
        self._traces = [
            Path(folder, f"ecoshell-escape-{self._victim.pid}") for folder in ("/dev/shm", "/tmp")
        ]
        self._memory = ctypes.CDLL(None).shmget(self._victim.pid, 4096, _CREATE)
        self._listeners = self._listening()
        self._before = dict(self._state())

    @property
    def variables(self) -> dict[str, str]:
        """The variables that escapes use."""
        tcp, tcp6, udp, file, abstract = (listener.getsockname() for listener in self._listeners)
        return {
            "HOME": str(self.home),
            "OUT": str(self.outside),
            "VICTIM": str(self._victim.pid),
            "SHM": str(self._victim.pid),
            "TCP": str(tcp[1]),
            "TCP6": str(tcp6[1]),
            "UDP": str(udp[1]),
            "SOCKET": file,
            "ABSTRACT": abstract[1:].decode(),
        }

    def harm(self) -> str:
        """What has been reached or changed since the start; empty if nothing."""
        after = dict(self._state())
        if changed := {
            path for path in {*self._before, *after} if self._before.get(path) != after.get(path)
        }:
            return f"changed: {sorted(changed)}"
        if self._victim.poll() is not None or self._status() in "Tt":
            return "the process was signalled"
        if traces := [path for path in self._traces if path.exists()]:
            return f"created: {traces}"
        return next(
            (f"reached: {listener}" for listener in self._listeners if _was_reached(listener)), ""
        )

    def close(self) -> None:
        self._victim.send_signal(signal.SIGKILL)
        self._victim.wait()
        for listener in self._listeners:
            listener.close()
        ctypes.CDLL(None).shmctl(self._memory, _REMOVE, 0)
        for file in (*self._files, *self._traces):
            file.unlink(missing_ok=True)
        shutil.rmtree(self._base, ignore_errors=True)

    def _listening(self) -> list[socket.socket]:
        kinds = [
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(self._base / "socket")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0ecoshell-{self._victim.pid}"),
        ]
        listeners: list[socket.socket] = []
        for family, kind, address in kinds:
            listener = socket.socket(family, kind)
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listeners.append(listener)
        return listeners

    def _status(self) -> str:
        return Path(f"/proc/{self._victim.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def _state(self) -> Iterator[tuple[str, object]]:
        """Every file outside the workspace, and the parts of the workspace that are executed later."""
        roots = [self._base, *(self.workspace / name for name in _GUARDED)]
        yield (
            "repository",
            (self.workspace / ".git").stat().st_ino if (self.workspace / ".git").is_dir() else None,
        )
        for root in roots:
            for folder, folders, files in os.walk(root):
                if folder == str(self.home):
                    folders.remove(self.workspace.name)
                for name in (*folders, *files):
                    yield f"{folder}/{name}", _file_state(Path(folder, name))
            if root != self._base:
                yield str(root), _file_state(root)


def _file_state(path: Path) -> object:
    with suppress(OSError):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        time = status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0
        return status.st_mode, status.st_uid, status.st_ino, time, content
    return None


def _was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(1)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
