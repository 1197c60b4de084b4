"""Full disks: a size limit for files, which any user can set, or a tiny disk, which needs the superuser."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def limit_files(size: int) -> None:
    """Limit the size of files that this process and its children can write, in bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Limit the size of files temporarily; Python ignores the signal of the limit."""
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    limit_files(size)
    try:
        yield
    finally:
        limit_files(previous)


@contextmanager
def tiny_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a disk of `size` bytes on a new folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("only the superuser may mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, free: int) -> None:
    """Fill a disk except for `free` bytes."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
        filler.truncate(max(0, filler.tell() - free))
