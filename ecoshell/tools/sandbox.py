"""The sandbox of commands: it writes the workspace and a temporary folder, reads no secrets and has no network.

Linux: bubblewrap, or namespaces without it. macOS: sandbox-exec. The policy is the same.
"""

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ecoshell.tools.protection import protection

if TYPE_CHECKING:  # few workspaces are linked
    from ecoshell.tools.linked_worktree import LinkedWorktree

SandboxMode = Literal["auto", "off", "strict"]
Reach = Literal["inside", "network", "outside"]  # the sandbox alone, also the network, or all
reach: ContextVar[Reach] = ContextVar("reach", default="inside")  # of the current command

_HOME_SECRETS = """
.ssh .aws .azure .gnupg .kube .docker .password-store .mozilla .thunderbird .terraform.d .local/share/keyrings
.config/gcloud .config/gh .config/hub .config/op .config/doctl .config/rclone .config/google-chrome .config/chromium
.config/microsoft-edge .config/BraveSoftware .config/vivaldi .var/app/org.mozilla.firefox snap/firefox snap/chromium
.netrc .pgpass .my.cnf .git-credentials .config/git/credentials .npmrc .yarnrc.yml .pypirc .vault-token .boto .s3cfg
.cargo/credentials .cargo/credentials.toml .gem/credentials .cache/huggingface/token .dockercfg .Xauthority
.bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history
.local/share/fish/fish_history Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages
"""
"""Folders and files of a home folder that commands do not read."""
_MAC_SECRETS = ("Library/Application Support/Google", "Library/Application Support/Firefox")
_SYSTEM_SECRETS = "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/ssl/private"
_EXECUTED_LATER = (
    ".git/hooks .git/config .git/config.worktree .git/modules .ecoshell .envrc .githooks .husky .vscode .idea "
    ".devcontainer .mcp.json .bashrc .bash_profile .profile .zshrc .zshenv .zprofile .config/git .config/fish "
    ".config/autostart .config/systemd .gitconfig"
)
"""Paths of the workspace that other programs execute later; a command does not write them."""
_RESERVED = (".git/hooks", ".ecoshell")  # protected paths that exist, empty, while a command runs
_LATER = (".git/commondir", ".git/config.worktree")  # they redirect git; new ones are removed
_KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger")  # root writes them without capabilities
_MACHINE = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run")
_GPU = ("/dev/nvidia*", "/dev/kfd", "/dev/dxg", "/dev/dri")
_PROFILE: str = """(version 1)
(allow default)
(deny file-write*)
(deny signal)
(deny process-info*)
(deny mach-priv-task-port)
(deny file-write-setugid)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))"""
"""The beginning of every profile of sandbox-exec; later rules win."""
_PRIVATE_FOLDERS = ("/tmp", "/run", "/var/run")
_placeholders = Counter[Path]()  # reserved paths that were created, with their commands
_SCRATCH = "ecoshell-sandbox-"  # the beginning of the names of temporary folders
_PROBE_SECONDS = 10.0
_INSTALL = "Install bubblewrap (package `bubblewrap`), and allow user namespaces."
_NETWORK_ERROR = re.compile(
    r"network is unreachable|temporary failure in name resolution|could not resolve|name or service not known|"
    r"nodename nor servname|no address associated|getaddrinfo|nameresolutionerror|enetunreach|eai_again|"
    r"connection refused|dns error|failed to establish a new connection|no route to host",
    re.IGNORECASE,
)
_FILE_ERROR = re.compile(
    r"read-only file system|permission denied|operation not permitted|\berofs\b|\beacces\b|\beperm\b|no such device",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Backend:
    """The program that holds the sandbox on this machine; without one, `problem` says why."""

    command: tuple[str, ...] = ()
    name: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one workspace."""

    mode: SandboxMode
    workspace: Path  # its real path
    own: tuple[Path, ...] = ()  # the folders of ecoshell, which commands do not read

    @property
    def problem(self) -> str:
        """Why commands cannot run in it; empty if they can. May block on first use."""
        if self.workspace == Path("/") or self.workspace.stat().st_uid != os.geteuid():
            return "The workspace is the root folder or belongs to another user."
        return backend(self.workspace).problem

    @property
    def holds(self) -> bool:
        """Whether commands run in it. May block on first use."""
        return self.mode != "off" and not self.problem

    @property
    def _worktree(self) -> "LinkedWorktree | None":
        if not (self.workspace / ".git").is_file():
            return None
        from ecoshell.tools.linked_worktree import linked_worktree

        return linked_worktree(self.workspace)

    def wrap(
        self, command: Sequence[str], network: bool, readable: Sequence[Path] = ()
    ) -> Sequence[str]:
        """Return the command that runs `command` in the sandbox; creates its temporary folder.

        `readable` are real paths of folders that it reads although they lie in those of ecoshell.
        """
        for path in (self.workspace / name for name in _RESERVED):
            if path.parent.is_dir() and not path.parent.is_symlink() and not os.path.lexists(path):
                with suppress(OSError):
                    path.mkdir()
        working = backend(self.workspace)
        if working.name == "sandbox-exec":
            return [*working.command, "-p", self.profile(network, readable), *command]
        return [*working.command, *self._options(network, readable), "--", *command]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a command in the sandbox."""
        folder = str(_scratch() / "tmp") if sys.platform == "darwin" else "/tmp"
        return {**variables, "TMPDIR": folder, "XDG_CACHE_HOME": f"{folder}/.cache"}

    @contextmanager
    def prepared(self) -> Generator[list[str]]:
        """Hold the reserved paths while a command runs, and remove what redirects git afterwards.

        Yields a list that is filled at the end: the new paths that other programs execute later.
        """
        made: list[Path] = []
        created: list[str] = []
        for path in (self.workspace / name for name in _RESERVED):
            is_free = path in _placeholders or not os.path.lexists(path)
            is_free = is_free or (path.name == ".ecoshell" and _is_empty(path))
            if is_free and path.parent.is_dir() and not path.parent.is_symlink():
                with suppress(OSError):
                    path.mkdir(exist_ok=True)
                    _placeholders[path] += 1
                    made.append(path)
        names = [
            name
            for name in _EXECUTED_LATER.split()
            if not os.path.lexists(self.workspace / name) and name not in _LATER
        ]
        worktree = self._worktree
        later = [self.workspace / name for name in _LATER]
        later += [] if worktree is None else [worktree.settings]
        absent = [path for path in later if not os.path.lexists(path)]
        try:
            yield created
        finally:
            created += [name for name in names if os.path.lexists(self.workspace / name)]
            for path in made:
                _placeholders[path] -= 1
                if not _placeholders[path]:
                    del _placeholders[path]
                    with suppress(OSError):  # It has content by now.
                        path.rmdir()
            for path in absent:
                with suppress(OSError):
                    path.unlink()

    def secrets(self) -> Iterator[Path]:
        """Yield the real paths of secrets that exist, except those around the workspace."""
        homes = {Path.home()}
        with suppress(OSError):
            homes.update(Path("/home").iterdir() if os.geteuid() == 0 else ())
        names = [*_HOME_SECRETS.split(), *_MAC_SECRETS]
        candidates = [
            *(f"{home}/{name}" for home in homes for name in names),
            *_SYSTEM_SECRETS.split(),
            *map(str, self.own),
        ]  # texts, because making hundreds of paths takes milliseconds
        existing = (path for path in candidates if os.access(path, os.F_OK))
        for path in map(Path, dict.fromkeys(map(os.path.realpath, existing))):
            if not self.workspace.is_relative_to(path):
                yield path

    def protected(self) -> Iterator[Path]:
        """Yield the paths of the workspace that exist and that a command must not write."""
        for name in _EXECUTED_LATER.split():
            path = self.workspace / name
            if path.exists() and Path(os.path.realpath(path)).is_relative_to(self.workspace):
                yield Path(os.path.realpath(path))
        git = self.workspace / ".git"
        if git.is_file():  # the work tree of another repository
            yield git
            if (worktree := self._worktree) is not None:
                yield from worktree.fixed()

    def _options(self, network: bool, readable: Sequence[Path]) -> list[str]:
        """Return the options of bubblewrap, in the order in which they cover each other."""
        spaces = ("user", "pid", "ipc", "uts", "cgroup-try", *(() if network else ("net",)))
        options = ["--die-with-parent", *(f"--unshare-{space}" for space in spaces)]
        options += ["--cap-drop", "ALL"]
        scratch, top = _scratch(), str(self.workspace)
        options += _MACHINE
        for path in _KERNEL_FILES:
            options += ["--ro-bind-try", path, path]
        for pattern in _GPU:
            for device in Path("/").glob(pattern[1:]):
                options += ["--dev-bind-try", str(device), str(device)]
        options += ["--bind", str(scratch / "tmp"), "/tmp"]
        for path in _programs():
            options += ["--ro-bind", path, path]
        options += ["--bind", top, top]
        if (worktree := self._worktree) is not None:
            options += ["--ro-bind", str(worktree.repository), str(worktree.repository)]
            for path in worktree.writable():
                options += ["--bind", str(path), str(path)]
        covers = self._covers(readable)
        for path in self._folders_of(covers):  # A mount point cannot be renamed.
            options += ["--bind", str(path), str(path)]
        for path, source in covers.items():
            options += ["--ro-bind", str(source), str(path)]
        for place in self._readable(readable):
            options += ["--ro-bind", str(place), str(place)]
        return options

    def _covers(self, readable: Sequence[Path]) -> dict[Path, Path]:
        """Return what lies read-only over each path that commands do not read or write, outer folders first."""
        covers = {path: path for path in self.protected()}
        guarded = protection.get()
        for path, is_unread in guarded.paths() if guarded is not None else ():
            if _is_visible(path) or path.is_relative_to(self.workspace):
                covers[path] = _cover(path) if is_unread else path
        for path in (*self.secrets(), *self._sockets()):
            if _is_visible(path) or path.is_relative_to(self.workspace):
                inside = [place for place in self._readable(readable) if place.is_relative_to(path)]
                covers[path] = _cover(path, inside)
        hidden = {path for path, source in covers.items() if source != path}
        return {path: covers[path] for path in sorted(covers) if hidden.isdisjoint(path.parents)}

    def _folders_of(self, paths: Iterable[Path]) -> list[Path]:
        """Return the folders of the workspace, without itself, that contain one of these, outer folders first."""
        inside = (path for path in paths if path.is_relative_to(self.workspace))
        folders = {folder for path in inside for folder in path.parents}
        return sorted(folder for folder in folders if self.workspace in folder.parents)

    def _readable(self, places: Sequence[Path]) -> list[Path]:
        """Return the folders of these that lie in one of ecoshell's own or are hidden with all temporary files."""
        own = [Path(os.path.realpath(folder)) for folder in self.own]
        return [
            place
            for place in places
            if (not _is_visible(place) or any(folder in place.parents for folder in own))
            and place.is_dir()
            and not self.workspace.is_relative_to(place)
            and not place.is_relative_to(self.workspace)
        ]

    def _sockets(self) -> Iterator[Path]:
        """Yield the sockets of the machine, such as those of databases and agents, except the workspace's own."""
        lines = list[str]()
        with suppress(OSError):
            text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
            lines = text.splitlines()
        for line in lines:
            path = Path(f"/{line.partition(' /')[2]}")
            with suppress(OSError):
                if path.is_socket() and not path.is_relative_to(self.workspace):
                    yield Path(os.path.realpath(path))

    def profile(self, network: bool, readable: Sequence[Path] = ()) -> str:
        """Return the profile of sandbox-exec, in Apple's profile language."""
        lines = _PROFILE.splitlines()
        worktree = self._worktree
        shared = () if worktree is None else worktree.writable()
        for folder in (self.workspace, _scratch() / "tmp", *shared):
            lines.append(f"(allow file-write* (subpath {_quoted(folder)}))")
        for name in (*_EXECUTED_LATER.split(), *_LATER):
            lines.append(f"(deny file-write* (subpath {_quoted(self.workspace / name)}))")
        if worktree is not None:
            for path in (self.workspace / ".git", *worktree.fixed(), worktree.settings):
                lines.append(f"(deny file-write* (subpath {_quoted(path)}))")
        secrets, guarded = [*self.secrets()], protection.get()
        rules = [] if guarded is None else [*guarded.paths()]
        names = (self.workspace / name for name in _EXECUTED_LATER.split())
        for path in self._folders_of([*names, *secrets, *(path for path, _ in rules)]):
            lines.append(f"(deny file-write-create file-write-unlink (literal {_quoted(path)}))")
        for path in secrets:
            lines.append(f"(deny file-read* file-write* (subpath {_quoted(path)}))")
        for path in self._readable(readable):
            lines.append(f"(allow file-read* (subpath {_quoted(path)}))")
        for path, is_unread in rules:
            reading = "file-read* " if is_unread else ""
            lines.append(f"(deny {reading}file-write* (subpath {_quoted(path)}))")
        if not network:
            lines.append("(deny network*)")
        return "\n".join(lines)


def obstacle(status: int, output: str, used: Reach) -> Literal["", "network", "outside"]:
    """Return what a failed command in the sandbox seems to have lacked; empty if nothing."""
    if status == 0 or used == "outside":
        return ""
    if used == "inside" and _NETWORK_ERROR.search(output):
        return "network"
    return "outside" if _FILE_ERROR.search(output) else ""


@cache
def backend(workspace: Path) -> Backend:
    """Return what holds the sandbox here; blocks while it runs a program in it."""
    if sys.platform == "darwin":
        program = Backend(("/usr/bin/sandbox-exec",), "sandbox-exec")
        return _working([program], ["-p", "(version 1)(allow default)"])
    if sys.platform != "linux":
        return Backend(problem=f"No sandbox is known for {sys.platform}.")
    program = shutil.which("bwrap")
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    python = os.path.realpath(sys.executable)  # starts faster than that of a virtual environment
    own = (python, "-I", "-S", "-c", f"{start}import namespaces; namespaces.run()")
    backends = [Backend(own, "namespaces")]
    if program and not Path(os.path.realpath(program)).is_relative_to(workspace):
        backends.insert(0, Backend((os.path.realpath(program),), "bubblewrap"))
    spaces = [f"--unshare-{space}" for space in ("user", "pid", "ipc", "uts", "net", "cgroup-try")]
    return _working(backends, ["--die-with-parent", *spaces, "--cap-drop", "ALL", *_MACHINE, "--"])


def _working(backends: Sequence[Backend], options: Sequence[str]) -> Backend:
    """Return the first that can run a program, else why none can."""
    problems: list[str] = []
    for candidate in backends:
        command = [*candidate.command, *options, "/bin/sh", "-c", "exit 0"]
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=True,
            )
            return candidate
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {error.returncode}"
            problems.append(f"{candidate.name}: {reason}")
        except (OSError, subprocess.TimeoutExpired) as error:
            problems.append(f"{candidate.name}: {error}")
    return Backend(problem=f"No sandbox works on this machine ({'; '.join(problems)}). {_INSTALL}")


@cache
def _scratch() -> Path:
    """Return the folder of this process: `tmp` for commands, and what covers secrets; removes those of killed ones."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=_SCRATCH)))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
    for stale in folder.parent.glob(f"{_SCRATCH}*/lock"):
        with suppress(OSError), stale.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its process lives
            _remove(stale.parent, os.getpid())
    (folder / "tmp").mkdir()
    (folder / "folder").mkdir(mode=0)
    (folder / "file").touch(mode=0)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        with suppress(OSError):
            (folder / "folder").rmdir()
        shutil.rmtree(folder, ignore_errors=True)


def _cover(path: Path, inside: Sequence[Path] = ()) -> Path:
    """Return the unreadable file or folder that covers a path, or one with only the folders that are mounted inside."""
    if not inside:
        return _scratch() / ("folder" if path.is_dir() else "file")
    names = [str(place.relative_to(path)) for place in inside]
    folder = _scratch() / hashlib.sha256("\0".join(names).encode()).hexdigest()
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def _is_empty(path: Path) -> bool:
    with suppress(OSError):
        return not path.is_symlink() and not any(path.iterdir())
    return False


def _is_visible(path: Path) -> bool:
    """Whether a command sees this path of the machine, before the workspace is added."""
    return not any(path.is_relative_to(folder) for folder in _PRIVATE_FOLDERS)


def _programs() -> list[str]:
    """Return what programs need of the private folders: Python, folders of PATH, and the list of name servers."""
    folders = (sys.prefix, sys.base_prefix, *os.environ.get("PATH", "").split(":"))
    paths = (*folders, "/run/current-system", "/etc/resolv.conf")
    real = dict.fromkeys(os.path.realpath(path) for path in paths if path.startswith("/"))
    hidden = (path for path in real if not _is_visible(Path(path)) and path != "/tmp")
    return [path for path in hidden if os.access(path, os.F_OK)]


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
