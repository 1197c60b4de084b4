"""Less memory for an idle chat, where the C library is glibc."""

import sys
from functools import lru_cache
from typing import Any

_ARENA_MAX = -8
"""The parameter M_ARENA_MAX of mallopt."""


@lru_cache(1)
def _glibc() -> Any:
    """The C library if it is glibc, else None."""
    if sys.platform != "linux":
        return None
    import ctypes  # not needed for the first frame

    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def share_arena() -> None:
    """Let new threads allocate from the main arena; each has its own otherwise, mostly empty in an idle chat."""
    if (glibc := _glibc()) is not None:
        glibc.mallopt(_ARENA_MAX, 1)


def release_free_memory() -> None:
    """Return the free memory of the start to the system; blocks for a few milliseconds."""
    if (glibc := _glibc()) is not None:
        glibc.malloc_trim(0)
