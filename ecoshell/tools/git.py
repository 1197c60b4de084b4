"""What git says of a folder, in the time it is given; nothing that the repository names as a program is run for it."""

import asyncio
import contextlib
import os
import re
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
"""Settings of a repository that name nothing to be run."""
_HOOKLESS = frozenset([
    "status", "log", "show", "ls-files", "shortlog", "rev-parse", "grep", "cat-file", "ls-tree", "rev-list",
])  # fmt: skip
"""Commands of git that run no hook as long as they write no index."""
_SECONDS = 3.0


async def why_not_plain(root: Path, command: str) -> str:
    """What a repository has, as a sentence's end, that git may run for a command by its name; empty where nothing is.

    That are settings beyond the ordinary, hooks, and submodules, which have settings of their own.
    """
    settings, staged, hooks = await asyncio.gather(
        git(root, "config", "--show-scope", "--includes", "--name-only", "-z", "--list", seconds=_SECONDS),
        git(root, "ls-files", "--stage", "-z", ":/", seconds=_SECONDS),
        git(root, "rev-parse", "--git-path", "hooks", seconds=_SECONDS),
    )
    if settings is None or staged is None or hooks is None:
        return "git does not say what this repository may have it run"
    fields = settings.split("\0")
    for scope, name in zip(fields[::2], fields[1::2], strict=False):
        if scope not in ("system", "global", "command") and not _PLAIN_SETTINGS.fullmatch(name):
            return f"the repository's own setting {name} can have git run something"
    if re.search(r"(?:^|\0)160000 ", staged):
        return "the repository has submodules, whose settings can have git run something"
    if command not in _HOOKLESS and (hook := await asyncio.to_thread(_hook_in, root / hooks.rstrip("\n"))):
        return f"git may run the repository's hook {hook}"
    return ""


def _hook_in(folder: Path) -> str:
    """The name of a hook that can be run."""
    try:
        with os.scandir(folder) as entries:
            return next((each.name for each in entries if "." not in each.name and os.access(each, os.X_OK)), "")
    except OSError:
        return ""
