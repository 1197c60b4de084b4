"""Read-only git queries: the state of a repository, and whether git may run programs in it."""

import asyncio
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

QUIET = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
"""Options that keep git from running programs that a repository configures."""
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""Environment without index writes (and so without hooks) and without fetching."""
_SETTINGS = ("config", "--show-scope", "--includes", "--name-only", "--list")
_STATUS = (
    "status",
    "--porcelain",
    "-z",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
    "--",
    ".",
)


@dataclass(frozen=True, slots=True)
class GitState:
    """Branch, number of changed paths and last commit of a repository."""

    branch: str
    """Empty if no branch is checked out."""
    changed: int | None
    """Number of changed paths, counting a new folder once; None if unknown."""
    subject: str
    """Subject of the last commit; empty without one."""


async def git(root: Path, *arguments: str, seconds: float) -> str | None:
    """Return the output of a git command in this folder; None without git or a repository, or after a timeout."""
    run = partial(
        subprocess.run,
        ["git", *QUIET, *arguments],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT},
        timeout=seconds,
        check=False,
    )
    # In a thread: if a turn ends while an asyncio subprocess starts, asyncio may print a warning.
    with suppress(OSError, subprocess.TimeoutExpired):
        done = await asyncio.to_thread(run)
        return os.fsdecode(done.stdout) if done.returncode == 0 else None
    return None


async def state_of(root: Path, seconds: float) -> GitState | None:
    """Return the state of the folder's repository; None without one or after a timeout."""
    branch, subject, changed = await asyncio.gather(
        git(root, "branch", "--show-current", seconds=seconds),
        git(root, "log", "-1", "--format=%s", seconds=seconds),
        _changed(root, seconds),
    )
    return None if branch is None else GitState(branch.strip(), changed, (subject or "").strip())


async def _changed(root: Path, seconds: float) -> int | None:
    """Count changed paths; None if the repository configures filters, which git would run."""
    settings = await git(root, *_SETTINGS, seconds=seconds)
    names = (line.partition("\t") for line in (settings or "").splitlines())
    has_filters = any(
        name.startswith("filter.") and scope not in ("system", "global") for scope, _, name in names
    )
    if settings is None or has_filters:
        return None
    status = await git(root, *_STATUS, seconds=seconds)
    if status is None:
        return None
    entries = iter(status.split("\0")[:-1])
    count = 0
    for entry in entries:
        count += 1
        if entry[:1] in "RC":
            next(entries, None)  # Skip the old name.
    return count


_PLAIN_SETTINGS = re.compile(
    r"""core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol
        |safecrlf|quotepath|longpaths|untrackedcache|sharedrepository|abbrev)
    | remote\..*\.(url|pushurl|fetch|push|tagopt|prune|gh-resolved)
    | branch\..*\.(remote|merge|rebase|pushremote|description|vscode-merge-base|gh-merge-base)
    | user\.(name|email) | init\.defaultbranch | pull\.(rebase|ff) | push\.(default|autosetupremote|followtags)
    | fetch\.prune | rebase\.(autosquash|autostash|updaterefs) | merge\.(ff|conflictstyle) | commit\.gpgsign
    | rerere\.enabled | gc\.auto | color\.ui | extensions\.objectformat | lfs\.repositoryformatversion
    | diff\.(algorithm|renames|colormoved|mnemonicprefix|noprefix) | index\.version""",
    re.VERBOSE | re.DOTALL,
)
"""Repository settings that cannot run programs."""
_HOOKLESS = frozenset([
    "status", "log", "show", "ls-files", "shortlog", "rev-parse", "grep", "cat-file", "ls-tree", "rev-list",
])  # fmt: skip
"""Git commands that run no hooks unless they write the index."""
_SECONDS = 3.0


async def why_not_plain(root: Path, command: str) -> str:
    """Return the reason why git may run a program of the repository for this command; empty if it cannot.

    Reasons are unusual settings, hooks, and submodules, which have separate settings.
    """
    settings, staged, hooks = await asyncio.gather(
        git(root, *_SETTINGS, "-z", seconds=_SECONDS),
        git(root, "ls-files", "--stage", "-z", ":/", seconds=_SECONDS),
        git(root, "rev-parse", "--git-path", "hooks", seconds=_SECONDS),
    )
    if settings is None or staged is None or hooks is None:
        return "git did not list the settings and hooks of this repository"
    fields = settings.split("\0")
    for scope, name in zip(fields[::2], fields[1::2], strict=False):
        if scope not in ("system", "global", "command") and not _PLAIN_SETTINGS.fullmatch(name):
            return f"the repository setting {name} can make git run a program"
    if re.search(r"(?:^|\0)160000 ", staged):
        return "the repository has submodules, whose settings can make git run a program"
    if command in _HOOKLESS:
        return ""
    hook = await asyncio.to_thread(_hook_in, root / hooks.rstrip("\n"))
    return f"git may run the repository's hook {hook}" if hook else ""


def _hook_in(folder: Path) -> str:
    """Return the name of an executable hook."""
    try:
        with os.scandir(folder) as entries:
            hooks = (entry for entry in entries if "." not in entry.name)
            return next((hook.name for hook in hooks if os.access(hook, os.X_OK)), "")
    except OSError:
        return ""
