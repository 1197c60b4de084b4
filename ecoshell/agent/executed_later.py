"""Files that git, editors, shells and other programs execute later without asking."""

import fnmatch
import glob
import itertools
import posixpath
from collections.abc import Iterable
from pathlib import Path

from ecoshell.tools.path_patterns import GLOB, ancestors, fold, locations

_MAX_GLOB_PARTS = 2
_MAX_MATCHES = 1000
_STARTUP_FILES = (
    "bashrc bash_profile bash_login bash_logout bash_aliases profile zshrc zshenv zprofile zlogin zlogout kshrc mkshrc "
    "shrc cshrc tcshrc login logout inputrc xinitrc xprofile xsession xsessionrc"
)
_GIT = "git runs programs named in it"
_PATTERNS_BY_REASON = {
    _GIT: "*/.git */.git/* */.gitconfig */.config/git/* */.githooks/* */.husky/* */lefthook.yml "
    "*/.pre-commit-config.yaml */head",  # a repository without a working tree needs a file HEAD
    "direnv runs it": "*/.envrc */.direnvrc */.config/direnv/*",
    "an editor runs programs named in it": "*/.vscode/* */*.code-workspace */.idea/* */.devcontainer/* "
    "*/.devcontainer.json */.vimrc */.exrc */.nvimrc */.nvim.lua */.vim/* */.config/nvim/* */.emacs */.emacs.d/* "
    "*/.dir-locals.el */.mcp.json */.cursor/*",
    "a shell runs it at its start": f"{' '.join(f'*/.{name}' for name in _STARTUP_FILES.split())} */.config/fish/* "
    "*/.ssh/* */.config/autostart/* */.config/systemd/* */.config/environment.d/* */library/launchagents/* "
    "*/.bashrc.d/* */.zshrc.d/*",
    "programs are loaded from there": "*/.venv/* */venv/bin/* */node_modules/.bin/* */sitecustomize.py "
    "*/usercustomize.py */*.pth",
}
_PATTERNS = {reason: patterns.split() for reason, patterns in _PATTERNS_BY_REASON.items()}


def executed_later(paths: Iterable[str], own: Iterable[str] = ()) -> str:
    """Why a file with one of these absolute paths is executed later; empty if none is.

    `own` are ecoshell's own folders. Reads the disk only to detect repositories.
    """
    for path in paths:
        name = fold(path)
        if any(f"{name}/".startswith(f"{fold(folder)}/") for folder in own):
            return "it controls ecoshell itself"
        for reason, patterns in _PATTERNS.items():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                return reason
        folders = ancestors(posixpath.dirname(path))
        if any(
            posixpath.isfile(f"{folder}/HEAD") and posixpath.isdir(f"{folder}/refs")
            for folder in folders
        ):
            return _GIT  # a repository without a working tree
    return ""


def may_be_executed_later(workspace: Path, word: str) -> bool:
    """Whether a file that a word names, also by wildcards, may be executed later; too many matches count as yes."""
    names, glob_parts = [word], sum(1 for part in word.split("/") if GLOB.search(part))
    if glob_parts > _MAX_GLOB_PARTS:
        return True
    if glob_parts:
        matches = glob.iglob(posixpath.expanduser(word), root_dir=workspace)  # noqa: PTH207 - may be absolute
        names += itertools.islice(matches, _MAX_MATCHES)
    return len(names) > _MAX_MATCHES or any(
        executed_later(locations(workspace, name) or ()) for name in names
    )
