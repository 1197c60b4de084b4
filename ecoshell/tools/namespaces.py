"""A subset of bubblewrap for machines without it: `namespaces.run()` with `sys.argv` as OPTIONS -- COMMAND.

Runs a command in new Linux namespaces, without capabilities. The options mean the same as those of `bwrap`; a relative
path, a missing kernel feature or an unknown option ends it with status 1 and a sentence.
"""

# Imports only what starts fast: `signal`, `socket` and `ctypes` take milliseconds.
import _ctypes
import _socket
import errno
import fcntl
import os
import sys

Options = list[tuple[str, tuple[str, ...]]]

_NEW_USER, _NEW_MOUNTS, _NEW_PIDS, _NEW_NET = 0x10000000, 0x00020000, 0x20000000, 0x40000000
_NEW_IPC, _NEW_HOST_NAME, _NEW_CGROUP = 0x08000000, 0x04000000, 0x02000000
_BIND, _RECURSIVE, _PRIVATE, _NO_SETUID, _NO_DEVICES, _NO_EXECUTION = 4096, 16384, 1 << 18, 2, 4, 8
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NO_SETUID = 1, 2
_MOUNT_SETATTR = 442
_DEFAULT_HANDLER, _KILL_SIGNAL, _PIPE_SIGNAL, _FILE_SIZE_SIGNAL = 0, 9, 13, 25
_WHOLE_TREE = 0x8000
_DEATH_SIGNAL, _DROP_BOUNDING, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_ALL = 1, 24, 38, 47, 4
_CAPABILITY_VERSION = 0x20080522
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}
_COVERED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Root writes them without capabilities."""


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO


_LIBRARY = _ctypes.dlopen(None, os.RTLD_NOW)  # pyright: ignore[reportArgumentType] - this process


def _function(name: str) -> _Function:
    """Return a function of the C library; `ctypes.CDLL` would take a fifth of the sandbox's start."""
    return _Function(_ctypes.dlsym(_LIBRARY, name))


_mounted, _system_call, _unshared = _function("mount"), _function("syscall"), _function("unshare")
_process_control, _set_capabilities = _function("prctl"), _function("capset")
_set_handler = _function("signal")


def _numbers(*numbers: int, size: int) -> bytes:
    return b"".join(number.to_bytes(size, sys.byteorder) for number in numbers)


def _require(result: int, action: str) -> None:
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    paths, options = (os.fsencode(source), os.fsencode(target)), data.encode()
    result = _mounted(*paths, kind.encode(), flags, options)
    _require(result, f"mount {target}")


def _set_read_only(target: str, read_only: bool) -> None:
    """Change a mount and all below it; a writable one stays read-only where the machine has it so."""
    set_flags = _ATTRIBUTE_NO_SETUID | (_ATTRIBUTE_READ_ONLY if read_only else 0)
    attributes = _numbers(set_flags, 0 if read_only else _ATTRIBUTE_READ_ONLY, 0, 0, size=8)
    place, size = os.fsencode(target), len(attributes)
    result = _system_call(_MOUNT_SETATTR, -100, place, _WHOLE_TREE, attributes, size)
    if read_only:
        _require(result, f"make {target} read-only")


def _bind(source: str, target: str) -> bool:
    """Mount a file or folder of the machine, as it was at the start, on a path that may be missing.

    Return False if the path is missing in a read-only place: a socket to be covered has ended meanwhile.
    """
    if not os.path.lexists(target):
        try:
            if os.path.isdir(source):
                os.makedirs(target)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            if error.errno == errno.EROFS:
                return False
            raise
    _mount(source, target, "", _BIND | _RECURSIVE)
    return True


def _opened(options: Options) -> Options:
    """Replace each source by its open descriptor, because later mounts may cover it."""
    result: Options = []
    for name, paths in options:
        is_missing = name.endswith("-try") and not os.path.exists(paths[0])
        if len(paths) == 2 and paths != ("/", "/") and not is_missing:
            result.append((name, (f"/proc/self/fd/{os.open(paths[0], os.O_PATH)}", paths[1])))
        elif not is_missing:
            result.append((name, paths))
    return result


def _make_devices(target: str) -> None:
    """Mount a folder with the harmless devices over /dev."""
    devices = [name for name in _DEVICES if os.path.exists(f"/dev/{name}")]
    descriptors = {name: os.open(f"/dev/{name}", os.O_PATH) for name in devices}
    _mount("tmpfs", target, "tmpfs", _NO_SETUID, "mode=0755")
    for name, descriptor in descriptors.items():
        _bind(f"/proc/self/fd/{descriptor}", f"{target}/{name}")
        os.close(descriptor)
    for name, destination in _LINKS.items():
        os.symlink(destination, f"{target}/{name}")
    os.mkdir(f"{target}/shm", 0o1777)
    os.mkdir(f"{target}/pts")
    flags, options = _NO_SETUID | _NO_EXECUTION, "newinstance,ptmxmode=0666,mode=620"
    _mount("devpts", f"{target}/pts", "devpts", flags, options)


def _make_processes(target: str) -> None:
    _mount("proc", target, "proc", _NO_SETUID | _NO_DEVICES | _NO_EXECUTION)
    for path in filter(os.path.exists, _COVERED):
        _bind(path, path)
        _set_read_only(path, read_only=True)


def _arrange(options: Options) -> None:
    """Carry out the options that concern files, in their order."""
    _mount("none", "/", "", _PRIVATE | _RECURSIVE)
    for name, paths in options:
        if name in ("--bind", "--ro-bind", "--ro-bind-try"):
            if paths == ("/", "/") or _bind(*paths):
                _set_read_only(paths[1], read_only=name != "--bind")
        elif name == "--dev-bind-try":
            _bind(*paths)
        elif name == "--dev":
            _make_devices(*paths)
        elif name == "--proc":
            _make_processes(*paths)
        elif name == "--tmpfs":
            _mount("tmpfs", paths[0], "tmpfs", _NO_SETUID | _NO_DEVICES, "mode=0755")


def _start_loopback() -> None:
    connection = _socket.socket()
    request = b"lo".ljust(16, b"\0") + bytes([_INTERFACE_UP]).ljust(24, b"\0")
    fcntl.ioctl(connection.fileno(), _SET_INTERFACE_FLAGS, request)
    connection.close()


def _drop_capabilities() -> None:
    for capability in range(64):
        _process_control(_DROP_BOUNDING, capability, 0, 0, 0)
    _process_control(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header, none = _numbers(_CAPABILITY_VERSION, 0, size=4), bytes(24)
    _require(_set_capabilities(header, none), "drop the capabilities")
    _require(_process_control(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "forbid new privileges")


def _wait(child: int) -> int:
    """Wait for a child, and reap all others; returns its status as a shell would."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


_ARGUMENTS = {
    **dict.fromkeys(("--bind", "--ro-bind", "--ro-bind-try", "--dev-bind-try"), 2),
    **dict.fromkeys(("--dev", "--proc", "--tmpfs", "--cap-drop"), 1),
}
"""Number of arguments of each option."""
_UNSHARE = {
    "--unshare-user": _NEW_USER,
    "--unshare-pid": _NEW_PIDS,
    "--unshare-ipc": _NEW_IPC,
    "--unshare-uts": _NEW_HOST_NAME,
    "--unshare-cgroup-try": _NEW_CGROUP,
    "--unshare-net": _NEW_NET,
}


def _parsed(words: list[str]) -> tuple[Options, int, list[str]]:
    """The options with their arguments, the namespaces, and the command."""
    options, namespaces, remaining = Options(), _NEW_MOUNTS, words
    while remaining and (name := remaining.pop(0)) != "--":
        if name in _UNSHARE:
            namespaces |= _UNSHARE[name]
        elif name in _ARGUMENTS:
            options.append((name, tuple(remaining.pop(0) for _ in range(_ARGUMENTS[name]))))
        elif name != "--die-with-parent":
            raise ValueError(f"unknown option {name}")
    return options, namespaces, remaining


def main(words: list[str]) -> int:
    """Run the command and return its exit status."""
    options, namespaces, command = _parsed(words)
    folder, user, group = os.getcwd(), os.geteuid(), os.getegid()
    _process_control(_DEATH_SIGNAL, _KILL_SIGNAL, 0, 0, 0)
    _require(_unshared(namespaces), "create namespaces")
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for file, text in maps.items():
        with open(f"/proc/self/{file}", "w", encoding="ascii") as opened:
            opened.write(text)
    if first := os.fork():
        return _wait(first)
    _process_control(_DEATH_SIGNAL, _KILL_SIGNAL, 0, 0, 0)
    _arrange(_opened(options))
    if namespaces & _NEW_NET:
        _start_loopback()
    os.chdir(folder)
    _drop_capabilities()
    # The first process of the namespace ignores signals, so the command is the second.
    if child := os.fork():
        for number in (0, 1, 2):
            os.close(number)
        os._exit(_wait(child))
    for number in (_PIPE_SIGNAL, _FILE_SIZE_SIGNAL):  # Python ignores them.
        _set_handler(number, _DEFAULT_HANDLER)
    os.execvp(command[0], command)
    raise AssertionError  # unreachable


def run() -> None:
    """Run the command of `sys.argv` and end with its status."""
    try:
        code = main(sys.argv[1:])
    except (OSError, ValueError, IndexError) as error:
        sys.stderr.write(f"namespaces: {error}\n")
        code = 1
    os._exit(code)
