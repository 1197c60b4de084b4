"""Tools for the git repository of the workspace: five that read, and `git_commit`, which needs approval.

Reading runs no program of the repository: no hook, filter, pager or file system monitor. If its settings name one that
cannot be switched off, the tool fails with an explanation. All tools are limited to files of the workspace.
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

_READ_OPTIONS = (
    *QUIET,
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "diff.autoRefreshIndex=false",
    "--literal-pathspecs",
)
_PLAIN_DIFF = ("--no-color", "--no-ext-diff", "--no-textconv")
_AUTHOR_VARIABLES = frozenset({"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"})
"""Variables that are passed although their names look like secrets."""
_MAX_COMMITS = 100
_CHECK_SECONDS = 5.0
"""Time limit for locating the repository."""

Where = Annotated[str, "File or folder.", Subject.PATH]
Revision = Annotated[str, "Commit, branch, tag or range, such as HEAD~1 or main..HEAD."]


class GitTools:
    """The tools of one workspace; each public method is one."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    async def git_status(self, path: Where = ".") -> Observation:
        """Show the branch and which files are changed, staged or untracked."""
        return await self._read(
            "status", "--short", "--branch", "--ignore-submodules=all", path=path
        )

    async def git_diff(
        self,
        revision: Revision = "",
        path: Where = ".",
        staged: Annotated[bool, "What is staged, not what is not."] = False,
    ) -> Observation:
        """Show changes that are not committed, or those since or between revisions, as a diff."""
        selection = ["--cached"] if staged else []
        return await self._read("diff", *_PLAIN_DIFF, *selection, *_revision(revision), path=path)

    async def git_log(
        self,
        revision: Revision = "HEAD",
        path: Where = ".",
        count: Annotated[int, "How many commits."] = 20,
    ) -> Observation:
        """List commits, the newest first: hash, date, author, subject."""
        form = (
            "--format=%h %ad %an: %s",
            "--date=short",
            f"--max-count={max(1, min(count, _MAX_COMMITS))}",
        )
        return await self._read("log", *_PLAIN_DIFF, *form, *_revision(revision), path=path)

    async def git_show(self, revision: Revision = "HEAD", path: Where = ".") -> Observation:
        """Show one commit: its message, and what it changed as a diff."""
        commit = _revision(f"{revision.strip() or 'HEAD'}^0")
        return await self._read("show", *_PLAIN_DIFF, "--stat", "--patch", *commit, path=path)

    async def git_blame(
        self,
        path: Where,
        first: Annotated[int, "First line."] = 1,
        last: Annotated[int, "Last line; 0 is the end of the file."] = 0,
    ) -> Observation:
        """Show who changed each line of a file last, in which commit."""
        lines = f"-L{max(1, first)},{last if last > 0 else ''}"
        return await self._read("blame", "--no-textconv", "--date=short", lines, path=path)

    async def git_commit(
        self,
        message: Annotated[str, "The commit message."],
        paths: Annotated[
            list[Annotated[str, Subject.PATH]], "Files to commit; none commits what is staged."
        ] = [],  # noqa: B006 - never changed
    ) -> Observation:
        """Commit files, or what is staged, to the git repository; hooks of the repository run."""
        if not message.strip():
            raise ToolError("The commit message is empty.")
        names = [self._unresolved(path) for path in paths]
        await self._require_own_repository()
        if not names:
            counts: set[int] = set()
            for only in ("--no-relative", "--relative"):
                words = ("diff", "--cached", "--name-only", "--no-ext-diff", "-z", only)
                counts.add(
                    (await git(self._workspace.root, *words, seconds=_CHECK_SECONDS) or "").count(
                        "\0"
                    )
                )
            if len(counts) > 1:
                raise ToolError(
                    "Files outside the workspace are staged: give `paths`, the files to commit."
                )
        if existing := self._existing(names):  # `commit` records missing files as deleted.
            added = await self._git("--literal-pathspecs", "add", "--", *existing)
            if not added.ok:
                return added
        files = ("--", *names) if names else ()
        return await self._git("--literal-pathspecs", "commit", f"--message={message}", *files)

    def _within(self, path: str) -> str:
        """Return a path relative to the workspace; raises ToolError if it is outside."""
        return self._workspace.name(self._workspace.resolve(path))

    def _unresolved(self, path: str) -> str:
        """Like `_within`, but return the path of a link itself; its target must be inside, too."""
        name, file = self._within(path), self._workspace.root / path
        if not file.is_symlink():
            return name
        return self._workspace.name(self._workspace.resolve(str(file.parent)) / file.name)

    def _existing(self, names: Iterable[str]) -> list[str]:
        """Return the names of files and links, including broken links."""
        return [name for name in names if os.path.lexists(self._workspace.root / name)]

    async def _read(self, command: str, *arguments: str, path: str) -> Observation:
        """Run a reading command on a path; raises ToolError if the repository could make it run a program."""
        names = [self._within(path)]
        if await self._require_own_repository() == self._workspace.root and names == ["."]:
            names = []  # With a path, git leaves out merges and empty commits.
        if why := await why_not_plain(
            self._workspace.root, "status"
        ):  # Hooks are off: see _READ_OPTIONS.
            raise ToolError(
                f"git {command} was not run: {why}. Use run_command, which needs approval."
            )
        return await self._git(*_READ_OPTIONS, command, *arguments, "--", *names)

    async def _require_own_repository(self) -> Path:
        """Return the top folder; raises ToolError unless the repository has its data in its own folder."""
        root = self._workspace.root
        places = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
        output = await git(root, "rev-parse", *places, seconds=_CHECK_SECONDS)
        if output is None:
            raise ToolError(f"{root} is not in a readable git repository.")
        top, data, common = (root / place for place in output.split("\n")[:3])
        if where := await asyncio.to_thread(_elsewhere, top, data, common):
            raise ToolError(f"The git repository of {root} is kept elsewhere, in {where}.")
        return top

    async def _git(self, *words: str) -> Observation:
        finished = await run_process(
            ["git", "-c", "core.quotePath=false", *words],
            folder=self._workspace.root,
            environment=safe_environment(environ, self._options.keep_variables | _AUTHOR_VARIABLES)
            | ENVIRONMENT,
            seconds=self._options.command_seconds,
            window=self._options.result.characters - 200,  # Room for a truncation mark.
        )
        if finished.timed_out:
            raise ToolError(f"git took longer than {self._options.command_seconds:g} s.")
        default = (
            "There is nothing to show."
            if finished.status == 0
            else f"git ended with {finished.status}."
        )
        text = finished.output.rstrip() or default
        return Observation(text, ok=finished.status == 0, truncated=finished.truncated)


def _revision(text: str) -> Iterable[str]:
    """Return the arguments for a revision, which cannot be an option; raises ToolError if it contains a file."""
    if ":" in text:
        raise ToolError(f"{text} is not a revision: use `path` for files.")
    return ("--end-of-options", text.strip()) if text.strip() else ()


def _elsewhere(top: Path, data: Path, common: Path) -> str:
    """Return a location of data outside the repository's folder; empty for its own data or a worktree's."""
    data, common = data.resolve(), common.resolve()
    is_worktree = _is_worktree(top, data)
    if not data.is_relative_to(top.resolve()) and not is_worktree:
        return str(data)
    if common != (data.parent.parent if is_worktree else data):
        return str(common)
    objects = common / "objects"
    alternates = objects / "info" / "alternates"
    contents = (
        Path(base, name) for base, folders, files in os.walk(objects) for name in (*folders, *files)
    )
    return next(
        (str(path) for path in (objects, *contents) if path.is_symlink() or path == alternates), ""
    )


def _is_worktree(top: Path, data: Path) -> bool:
    """Whether a repository elsewhere lists this folder as one of its worktrees."""
    gitdir = data / "gitdir"
    try:
        link = gitdir.read_text(encoding="utf-8").strip() if gitdir.is_file() else ""
        return bool(link) and Path(link).resolve() == (top / ".git").resolve()
    except (OSError, ValueError):
        return False


@hookimpl
def tools(workspace: Workspace, options: ToolOptions) -> list[Tool]:
    """Return the five reading tools and `git_commit`."""
    methods = GitTools(workspace, options)
    limits = Limits(options.command_seconds + 2 * _CHECK_SECONDS, options.result)
    reading: tuple[Effect, ...] = ("read",)
    lasting: tuple[Effect, ...] = ("read", "write", "execute")
    readers = (
        methods.git_status,
        methods.git_diff,
        methods.git_log,
        methods.git_show,
        methods.git_blame,
    )
    return [
        *(FunctionTool(reader, effects=reading, limits=limits) for reader in readers),
        FunctionTool(methods.git_commit, effects=lasting, limits=limits),
    ]
