"""Disks that are full: any user may limit how large a file may grow, and the superuser may have a tiny disk."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def limit_files(size: int) -> None:
    """From now on this process and those it starts can write no file past so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """The same for a while; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    limit_files(size)
    try:
        yield
    finally:
        limit_files(before)


@contextmanager
def tiny_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes, mounted on a new folder."""
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
    """Leave so many bytes of a disk."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
        filler.truncate(max(0, filler.tell() - free))
