"""What git says of a folder, in the time it is given; nothing that the repository names as a program is run for it."""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_QUIET = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
"""A repository may name programs there; a look at it must not run them."""
_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""No hook runs where no index is written, and nothing that is missing is fetched."""
_SETTINGS = ("config", "--show-scope", "--includes", "--name-only", "--list")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--", ".")


@dataclass(frozen=True, slots=True)
class GitState:
    """Where a repository stands."""

    branch: str
    """Empty while no branch is checked out."""
    changed: int | None
    """Paths below the folder that differ from the last commit, new folders as one; None where nobody could count."""
    subject: str
    """Of the last commit; empty before the first."""


async def git(root: Path, *arguments: str, seconds: float) -> str | None:
    """What a git command prints in this folder; None where there is no git, no repository, or no answer in time."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *_QUIET, *arguments,
            cwd=root, stdin=nothing, stdout=pipe, stderr=nothing, env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return os.fsdecode(output) if process.returncode == 0 else None


async def state_of(root: Path, seconds: float) -> GitState | None:
    """The state of the repository that a folder is in; None where it is in none, or git does not say in time."""
    branch, subject, changed = await asyncio.gather(
        git(root, "branch", "--show-current", seconds=seconds),
        git(root, "log", "-1", "--format=%s", seconds=seconds),
        _changed(root, seconds),
    )
    return None if branch is None else GitState(branch.strip(), changed, (subject or "").strip())


async def _changed(root: Path, seconds: float) -> int | None:
    """How many paths differ; not asked where the repository has filters of its own, which would be run for it."""
    settings = await git(root, *_SETTINGS, seconds=seconds)
    if settings is None or any(map(_is_own_filter, settings.splitlines())):
        return None
    status = await git(root, *_STATUS, seconds=seconds)
    if status is None:
        return None
    entries = iter(status.split("\0")[:-1])
    count = 0
    for entry in entries:
        count += 1
        if entry[:1] in "RC":
            next(entries, None)  # the name it had before
    return count


def _is_own_filter(setting: str) -> bool:
    """Whether a line of the settings is a filter that the user has not set up for all repositories."""
    scope, _, name = setting.partition("\t")
    return name.startswith("filter.") and scope not in ("system", "global")
