"""The address of a user's model host, and connections that verify the user at the other end."""

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshell import __version__
from ecoshell.models.keys import key_prefixes
from ecoshell.secrecy import SECRET_NAME

PATH_LIMIT = 100  # bytes of a socket's path; Linux takes 107, macOS 103
HELLO_LIMIT = 4096  # maximum bytes of the greeting, the first line of a connection
PATIENCE = 10.0  # seconds to wait for a host's greeting, or for the end of a stopped one
_PEER = struct.Struct("3i")
_ALWAYS_PASSED = ("HOME", "ECOSHELL_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH")
_PREFIXES = """
LITELLM_ HTTPX_ SSL_ GOOGLE_ VERTEX OR_ OLLAMA_ LM_STUDIO_ LLAMAFILE_
"""
_HOST_MODULES = ("model_host", "remote_worker", "streamed_answer", "failures", "traffic")
_NAMES = re.compile(
    r"(?:HTTPS?|ALL|NO)_PROXY|(?:REQUESTS|CURL)_CA_BUNDLE|SSLKEYLOGFILE", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Socket and lock of the host for one user, home directory, program version and set of packages."""

    folder: Path
    key: str

    @property
    def socket_file(self) -> Path:
        return self.folder / f"{self.key}.sock"

    @property
    def lock_file(self) -> Path:
        """The file the host keeps locked while it runs."""
        return self.folder / f"{self.key}.lock"

    def require_private(self, *, make: bool = False) -> None:
        """Raise OSError unless the folder is a real one of this user that is closed to others; `make` makes it."""
        if len(os.fsencode(self.socket_file)) > PATH_LIMIT:
            reason = "the path of a socket would be too long"
            raise OSError(errno.ENAMETOOLONG, reason, str(self.socket_file))
        if make:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = self.folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "not a private folder", str(self.folder))

    def connect(self) -> socket.socket:
        """Connect to the host; raises OSError when none is listening or another user is."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.socket_file))
            if peer_user(connection) != os.geteuid():
                reason = "another user listens there"
                raise PermissionError(errno.EPERM, reason, str(self.socket_file))
        except BaseException:
            connection.close()
            raise
        return connection


def host_address(folder: Path) -> HostAddress:
    """The address below this folder.

    The key depends on the versions of ecoshell and Python, on the installed packages and on the machine. An upgraded
    program therefore never talks to an older host, and machines that share a home directory have separate hosts.
    """
    parts: list[object] = [__version__, sys.executable, sys.version, os.uname().nodename]
    files = [Path(__file__).with_name(f"{name}.py") for name in _HOST_MODULES]
    litellm = importlib.util.find_spec("litellm")
    if litellm is not None and litellm.origin:
        files += [Path(litellm.origin), Path(litellm.origin).parents[1]]
    for file in files:
        with contextlib.suppress(OSError):
            parts += [file, file.stat().st_mtime_ns]
    digest = hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogateescape"))
    return HostAddress(folder.absolute(), digest.hexdigest()[:16])


def host_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables a host is started with: those that provider clients read, without keys.

    A running host only serves commands with the same values.
    """
    prefixes = (*_PREFIXES.split(), *key_prefixes())
    passed = {"PYTHONUTF8": "1"}
    for name, value in environ.items():
        is_read = name in _ALWAYS_PASSED or name.startswith(prefixes) or _NAMES.fullmatch(name)
        if is_read and not SECRET_NAME.search(name):
            passed[name] = value
    return passed


def environ_digest(environ: Mapping[str, str]) -> str:
    """Fingerprint of a set of variables."""
    return hashlib.sha256(json.dumps(sorted(environ.items())).encode()).hexdigest()


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket; raises OSError."""
    if sys.platform == "darwin":
        local_peercred = 1
        return struct.unpack("=II", connection.getsockopt(0, local_peercred, 8))[1]
    return _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A running host."""

    pid: int
    idle_seconds: float  # since the last ask ended; 0 while a command is connected


def status(address: HostAddress) -> HostStatus | None:
    """The state of the host, or None when none runs."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        address.require_private()
        with address.connect() as connection:
            hello = read_hello(connection)
            return HostStatus(int(hello["pid"]), float(hello["idle_seconds"]))
    return None


def stop_all(folder: Path) -> int:
    """Stop all hosts below a folder, including those of other versions, and return their number.

    A host that does not stop on request is killed.
    """
    stopped = 0
    for address in _addresses(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            address.require_private()
            with address.connect() as connection:
                pid = int(read_hello(connection)["pid"])
                connection.sendall(b'{"stop": true}\n')
                stopped += 1
                with contextlib.suppress(OSError):
                    while connection.recv(HELLO_LIMIT):
                        pass
                if not await_end(address):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    return stopped


def await_end(address: HostAddress, seconds: float = PATIENCE) -> bool:
    """Wait until no process holds the lock; returns False after a timeout."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError):
            lock = take_lock(address)
            if lock is not None:
                os.close(lock)
                return True
        time.sleep(0.01)
    return False


def take_lock(address: HostAddress) -> int | None:
    """The descriptor of the lock, or None while another process holds it; raises OSError."""
    lock = os.open(address.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _addresses(folder: Path) -> Iterator[HostAddress]:
    with contextlib.suppress(OSError):
        for file in sorted(folder.absolute().glob("*.lock")):
            yield HostAddress(folder.absolute(), file.stem)


def read_hello(connection: socket.socket) -> dict[str, Any]:
    """The first line of a host; raises OSError and ValueError."""
    text = b""
    while not text.endswith(b"\n") and len(text) < HELLO_LIMIT:
        piece = connection.recv(HELLO_LIMIT)
        if not piece:
            raise ConnectionError("the host has ended")
        text += piece
    return json.loads(text)
