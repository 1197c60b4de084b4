"""A project's folder: its files by name, as a person would look for them, and what git says of it.

git is given little time, and nothing that the repository names as a program is run for it.
"""

import asyncio
import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ecoshell.tools.workspace import CLOSED

MOST = 20_000
"""Files listed at most."""
_CLOSED = CLOSED | {"venv", "env", "dist", "build", "target", "site-packages"}
_LISTING_SECONDS = 5.0
_FILES = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
QUIET = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
"""A repository may name programs there; a look at it must not run them."""
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""No hook runs where no index is written, and nothing that is missing is fetched."""
_SETTINGS = ("config", "--show-scope", "--includes", "--name-only", "--list")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--", ".")


async def files_of(root: Path) -> list[str]:
    """Files below `root` by their paths in it, at most MOST, and the folders they are in, which end in a slash."""
    listed = await git(root, *_FILES, seconds=_LISTING_SECONDS)

    def found() -> list[str]:
        names = _walked(root) if listed is None else _present(root, listed)
        files = list(itertools.islice(names, MOST))
        folders = {f"{folder}/" for path in files for folder in PurePosixPath(path).parents if folder.name}
        return sorted([*files, *folders])

    return await asyncio.to_thread(found)


async def top_of(root: Path, seconds: float) -> dict[str, list[str]]:
    """What is in a workspace, by name (folders end in a slash), and of each folder what is in that.

    What git ignores and what hides is left out. Of each at most MOST are looked at; a folder for which the time was up
    seems empty.
    """
    listed = await git(root, *_FILES, seconds=seconds)
    until = time.monotonic() + seconds

    def found() -> dict[str, list[str]]:
        if listed is None:
            names = _names_in(root, until)
            return {name: _names_in(root / name, until) if name.endswith("/") else [] for name in names}
        top: dict[str, dict[str, None]] = {}
        for path in itertools.islice(_present(root, listed), MOST):
            name, slash, rest = path.partition("/")
            inner, deeper, _ = rest.partition("/")
            if not name.startswith(".") and not inner.startswith("."):
                below = top.setdefault(name + slash, {})
                if inner:
                    below[inner + deeper] = None
        return {name: sorted(top[name]) for name in sorted(top)}

    return await asyncio.to_thread(found)


def _names_in(folder: Path, until: float) -> list[str]:
    """The names in a folder; none where it cannot be read, or where it is too late."""
    try:
        with os.scandir(folder) as entries:
            found = itertools.takewhile(lambda _: time.monotonic() < until, itertools.islice(entries, MOST))
            names = [f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name for one in found]
    except OSError:
        return []
    return sorted(
        name for name in names if not name.startswith(".") and name.isprintable() and name.rstrip("/") not in _CLOSED
    )


def _present(root: Path, listed: str) -> Iterator[str]:
    """What git lists, as far as it is there, as it also lists what was deleted and not committed, and can be typed."""
    names = dict.fromkeys(listed.split("\0")[:-1])
    return (path for path in names if path.isprintable() and (root / path).is_file())


def _walked(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _CLOSED)
        for name in sorted(files):
            path = (Path(base) / name).relative_to(root).as_posix()
            if not name.startswith(".") and path.isprintable():
                yield path


# -- git


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
            "git", *QUIET, *arguments,
            cwd=root, stdin=nothing, stdout=pipe, stderr=nothing, env={**os.environ, **ENVIRONMENT},
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
    named = (line.partition("\t") for line in (settings or "").splitlines())
    own = any(name.startswith("filter.") and scope not in ("system", "global") for scope, _, name in named)
    if settings is None or own:
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
