"""GPU memory, as NVIDIA's program nvidia-smi reports it."""

import contextlib
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
"""Path prefixes of GPU devices: NVIDIA, AMD, and WSL."""
_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Devices that exist on every machine with a GPU."""
_QUERY_SECONDS = 5


@cache
def may_have_gpu() -> bool:
    """Return whether this machine may have a GPU."""
    return not Path("/proc/self/fd").is_dir() or any(device.exists() for device in _DEVICES)


def query(subject: str, *fields: str) -> list[list[str]]:
    """Return the fields of each subject, `gpu` or `compute-apps`; memory is in MB (2^20).

    Raises OSError without the program, and SubprocessError if it fails or does not end.
    """
    command = [
        "nvidia-smi",
        f"--query-{subject}={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_QUERY_SECONDS,
        check=True,
    )
    return [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]


def gpu_mb(pids: Collection[int]) -> float | None:
    """Return the GPU memory of these processes in MB (2^20); 0 if none has a GPU open, None if unknown.

    NVIDIA's driver does not report processes inside a container. Blocks.
    """
    using = {pid for pid in pids if _has_gpu_open(pid)} if may_have_gpu() else set[int]()
    if not using:
        return 0.0
    try:
        rows = [
            (int(pid), float(used)) for pid, used in query("compute-apps", "pid", "used_memory")
        ]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    own = [(pid, used) for pid, used in rows if pid in using]
    return sum(used for _, used in own) if {pid for pid, _ in own} == using else None


def _has_gpu_open(pid: int) -> bool:
    """Return whether a process has a GPU open; assumed if its files are not readable."""
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for file in files:
        with contextlib.suppress(OSError):  # closed in the meantime
            if str(file.readlink()).startswith(_GPUS):
                return True
    return False
