"""Memory that processes hold on NVIDIA's GPUs, asked of the driver's own library."""

import ctypes
from collections.abc import Collection
from functools import cache
from pathlib import Path

_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""What there is where a program could compute on a GPU: NVIDIA's, AMD's, and either under Windows."""
_LIBRARY = "libnvidia-ml.so.1"
_MOST_PROCESSES = 1024
_NOT_AVAILABLE = ctypes.c_ulonglong(-1).value
_MB = 1 << 20


class _ProcessInfo(ctypes.Structure):
    """`nvmlProcessInfo_t` of the library's third version."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@cache
def gpu_there() -> bool:
    """Whether a program could hold memory on a GPU here."""
    return not Path("/proc/self/fd").is_dir() or any(device.exists() for device in _DEVICES)


def gpu_mb(pids: Collection[int]) -> float | None:
    """MB (2^20) that these processes hold together; 0 where none of them has a GPU open, None where nobody can tell.

    May block: the first use loads the driver's library.
    """
    if not gpu_there():
        return 0.0
    using = [pid for pid in pids if _has_gpu_open(pid)]
    if not using:
        return 0.0
    library = _library()
    return None if library is None else _held(library, set(using))


def _has_gpu_open(pid: int) -> bool:
    """Whether a process has a GPU open; taken for granted where its files cannot be read."""
    try:
        links = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return any(link.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dxg")) for link in links)


def _target(entry: Path) -> str:
    """What an open file is; empty when it was closed meanwhile."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(_LIBRARY)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _held(library: ctypes.CDLL, pids: set[int]) -> float | None:
    """What the library says these processes hold; None when it does not know them, as from within a container."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    found: set[int] = set()
    used = 0
    for index in range(count.value):
        for info in _processes(library, index):
            if info.pid in pids and info.used != _NOT_AVAILABLE:
                found.add(info.pid)
                used += info.used
    return used / _MB if found == pids else None


def _processes(library: ctypes.CDLL, index: int) -> list[_ProcessInfo]:
    """The computing processes of one GPU; none where the library is too old to say."""
    device = ctypes.c_void_p()
    room = ctypes.c_uint(_MOST_PROCESSES)
    infos = (_ProcessInfo * _MOST_PROCESSES)()
    try:
        failed = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) or (
            library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(room), infos)
        )
    except AttributeError:
        return []
    return [] if failed else list(infos[: room.value])
