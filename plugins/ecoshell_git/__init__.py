"""Tools for the git repository of the workspace: five that read, and `git_commit`, which a person is asked about.

What reads runs nothing that the repository names: no hook, filter, pager, file system monitor or other program. Where
its settings name one that cannot be switched off, the tool is not run and says so. All see what is in the workspace.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation
from ecoshell.plugins import hookimpl
from ecoshell.secrecy import environ
from ecoshell.tools import Limits, Subject, Tool, ToolOptions
from ecoshell.tools.builtin.commands import run_process, safe_environment
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.git_state import ENVIRONMENT, QUIET, git, why_not_plain
from ecoshell.tools.workspace import Workspace

_READING = (*QUIET, "-c", "core.hooksPath=/dev/null", "-c", "diff.autoRefreshIndex=false", "--literal-pathspecs")
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")
_AUTHOR = frozenset({"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"})
"""Variables whose names only look like those of secrets."""
_MOST = 100
"""Commits that are listed at once."""
_SECONDS = 5.0
"""For a look at where the repository is."""

Where = Annotated[str, "File or folder.", Subject.PATH]
Revision = Annotated[str, "Commit, branch, tag or range, such as HEAD~1 or main..HEAD."]


class GitTools:
    """The tools of one workspace; each public method is one."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    async def git_status(self, path: Where = ".") -> Observation:
        """Show the branch and which files are changed, staged or untracked."""
        return await self._read("status", "--short", "--branch", "--ignore-submodules=all", "--", self._within(path))

    async def git_diff(
        self,
        revision: Revision = "",
        path: Where = ".",
        staged: Annotated[bool, "What is staged, not what is not."] = False,
    ) -> Observation:
        """Show changes that are not committed, or those since or between revisions, as a diff."""
        chosen = ["--cached"] if staged else []
        return await self._read("diff", *_PLAIN, *chosen, *_revision(revision), "--", self._within(path))

    async def git_log(
        self,
        revision: Revision = "HEAD",
        path: Where = ".",
        count: Annotated[int, "How many commits."] = 20,
    ) -> Observation:
        """List commits, the newest first: hash, date, author, subject."""
        form = ("--format=%h %ad %an: %s", "--date=short", f"--max-count={max(1, min(count, _MOST))}")
        return await self._read("log", *_PLAIN, *form, *_revision(revision), "--", self._within(path))

    async def git_show(self, revision: Revision = "HEAD", path: Where = ".") -> Observation:
        """Show one commit: its message, and what it changed as a diff."""
        one = _revision(f"{revision.strip() or 'HEAD'}^0")
        return await self._read("show", *_PLAIN, "--stat", "--patch", *one, "--", self._within(path))

    async def git_blame(
        self,
        path: Where,
        first: Annotated[int, "First line."] = 1,
        last: Annotated[int, "Last line; 0 is the end of the file."] = 0,
    ) -> Observation:
        """Show who changed each line of a file last, in which commit."""
        lines = f"-L{max(1, first)},{last if last > 0 else ''}"
        return await self._read("blame", "--no-textconv", "--date=short", lines, "--", self._within(path))

    async def git_commit(
        self,
        message: Annotated[str, "The commit message."],
        paths: Annotated[list[Annotated[str, Subject.PATH]], "Files to commit; none commits what is staged."] = [],  # noqa: B006 - never changed
    ) -> Observation:
        """Commit files, or what is staged, to the git repository; hooks of the repository run."""
        if not message.strip():
            raise ToolError("The commit message is empty.")
        named = [self._itself(path) for path in paths]
        await self._require_own()
        if not named:
            counts: set[int] = set()
            for only in ("--no-relative", "--relative"):
                words = ("diff", "--cached", "--name-only", "--no-ext-diff", "-z", only)
                counts.add((await git(self._workspace.root, *words, seconds=_SECONDS) or "").count("\0"))
            if len(counts) > 1:
                raise ToolError("More is staged than lies in the workspace: give `paths`, the files to commit.")
        if there := self._there(named):  # what is gone, `commit` takes as gone
            added = await self._git("--literal-pathspecs", "add", "--", *there)
            if not added.ok:
                return added
        only = ("--", *named) if named else ()
        return await self._git("--literal-pathspecs", "commit", f"--message={message}", *only)

    def _within(self, path: str) -> str:
        """A path inside the workspace, as git takes it there; raises ToolError for any other."""
        return self._workspace.name(self._workspace.resolve(path))

    def _itself(self, path: str) -> str:
        """The same, of a link its own path and not that of what it leads to, which must lie inside as well."""
        name, given = self._within(path), self._workspace.root / path
        if not given.is_symlink():
            return name
        return self._workspace.name(self._workspace.resolve(str(given.parent)) / given.name)

    def _there(self, names: Iterable[str]) -> list[str]:
        """Those of the names under which there is something, be it a link that leads nowhere."""
        return [name for name in names if os.path.lexists(self._workspace.root / name)]

    async def _read(self, command: str, *arguments: str) -> Observation:
        """What a command says that only reads; raises ToolError where the repository could have it run something."""
        await self._require_own()
        if why := await why_not_plain(self._workspace.root, "status"):  # as with it, no hook is run: see _READING
            raise ToolError(f"git {command} was not run: {why}. run_command runs it once a person allows it.")
        return await self._git(*_READING, command, *arguments)

    async def _require_own(self) -> None:
        """Raise ToolError unless the workspace is in a repository whose data belong to the folder it is in."""
        root = self._workspace.root
        places = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
        told = await git(root, "rev-parse", *places, seconds=_SECONDS)
        if told is None:
            raise ToolError(f"{root} is in no git repository that can be read.")
        top, data, common = (root / place for place in told.split("\n")[:3])
        if where := await asyncio.to_thread(_elsewhere, top, data, common):
            raise ToolError(f"The git repository of {root} is kept elsewhere, in {where}.")

    async def _git(self, *words: str) -> Observation:
        finished = await run_process(
            ["git", "-c", "core.quotePath=false", *words],
            folder=self._workspace.root,
            environment=safe_environment(environ, self._options.keep_variables | _AUTHOR) | ENVIRONMENT,
            seconds=self._options.command_seconds,
            window=self._options.result.characters - 200,  # room for a mark
        )
        if finished.timed_out:
            raise ToolError(f"git took longer than {self._options.command_seconds:g} s.")
        said = "There is nothing to show." if finished.status == 0 else f"git ended with {finished.status}."
        text = finished.output.rstrip() or said
        return Observation(text, ok=finished.status == 0, truncated=finished.truncated)


def _revision(text: str) -> Iterable[str]:
    """A revision as a word that is no option; nothing for none. Raises ToolError for one that names a file."""
    if ":" in text:
        raise ToolError(f"{text} is no revision: name a file by `path`.")
    return ("--end-of-options", text.strip()) if text.strip() else ()


def _elsewhere(top: Path, data: Path, common: Path) -> str:
    """Where a repository has what does not belong to its folder; empty where it is all its own, or a worktree's."""
    data, common = data.resolve(), common.resolve()
    is_worktree = _is_worktree(top, data)
    if not data.is_relative_to(top.resolve()) and not is_worktree:
        return str(data)
    if common != (data.parent.parent if is_worktree else data):
        return str(common)
    objects = common / "objects"
    alternates = objects / "info" / "alternates"
    inside = (Path(base, name) for base, folders, files in os.walk(objects) for name in (*folders, *files))
    return next((str(one) for one in (objects, *inside) if one.is_symlink() or one == alternates), "")


def _is_worktree(top: Path, data: Path) -> bool:
    """Whether a repository elsewhere knows this folder as one of its working trees."""
    known = data / "gitdir"
    try:
        told = known.read_text(encoding="utf-8") if known.is_file() else ""
        return bool(told) and Path(told.strip()).resolve() == (top / ".git").resolve()
    except (OSError, ValueError):
        return False


@hookimpl
def tools(workspace: Workspace, options: ToolOptions) -> list[Tool]:
    """`git_status`, `git_diff`, `git_log`, `git_show`, `git_blame`, `git_commit`."""
    of_workspace = GitTools(workspace, options)
    limits = Limits(options.command_seconds + 2 * _SECONDS, options.result)
    reading: tuple[Effect, ...] = ("read",)
    lasting: tuple[Effect, ...] = ("read", "write", "execute")
    looks = (of_workspace.git_status, of_workspace.git_diff, of_workspace.git_log)
    more = (of_workspace.git_show, of_workspace.git_blame)
    return [
        *(FunctionTool(one, effects=reading, limits=limits) for one in (*looks, *more)),
        FunctionTool(of_workspace.git_commit, effects=lasting, limits=limits),
    ]
