"""`ecoshell models pull`: a model from the hub, with its licence, its size and what has come so far."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

from ecoshell.cli.manage.show import print_json
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.models.base import size
from ecoshell.models.gguf import HUB, HubName, hub_name
from ecoshell.models.hub import RECOMMENDED, Hub, HubFile, Pull
from ecoshell.models.llama import GET_LLAMA, LLAMA
from ecoshell.models.local_models import hub_file
from ecoshell.options import ROLES, Options
from ecoshell.paths import user_paths
from ecoshell.untrusted import visible_line

_TICK = 0.2
"""Seconds between two lines of progress on a terminal."""
_STEP = 10
"""Percent between two of them elsewhere."""


def run(repo: str, *, as_json: bool) -> int:
    """Pull a model and print what to call it; raises UsageError, ModelMissing, ModelUnavailable and ModelBroken."""
    if not repo:
        known = "\n".join(f"  {one.name.short:<48} {one.summary}" for one in RECOMMENDED)
        raise UsageError("Nothing is named to pull.", fix=f"Give OWNER/REPO or OWNER/REPO:QUANT, such as\n{known}")
    hub = Hub(user_paths().models_folder)
    found = hub.find(hub_name(repo))
    path = _bring(hub, found)
    if as_json:
        record = {"name": str(found.name), "path": str(path), "size_bytes": found.size_bytes, "licence": found.licence}
        print_json(record)
    else:
        print(f"It is {path}\nTalk with it: ecoshell --model {found.name}")
        if not find_spec(LLAMA):
            print(f"Local models need llama-cpp-python. {GET_LLAMA}")
    return 0


def pull_wanted(options: Options) -> None:
    """Before a run: bring the models of the hub that it names and that are not here, where a person agrees.

    Nobody is asked where standard input or error is no terminal; the run then says how to pull them.
    """
    names = (options.model, *(options.roles.of(role) for role in ROLES))
    wanted = [hub_name(name) for name in names if name and name.startswith(HUB)]
    if not wanted or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    hub = Hub(user_paths().models_folder)
    for name in dict.fromkeys(wanted):
        if _is_missing(name):
            found = hub.find(name)
            _say(f"{name} is not on this machine: {_described(found)}.")
            if not _agreed():
                raise ModelMissing(f"{name} was not pulled.", fix="Choose another --model.", billed=False)
            _bring(hub, found)


def _is_missing(name: HubName) -> bool:
    try:
        hub_file(name, user_paths().models_folder)
    except ModelMissing:
        return True
    return False


def _agreed() -> bool:
    sys.stderr.write("Pull it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _bring(hub: Hub, found: Pull) -> Path:
    _say(f"{found.name.short}: {_described(found)}")
    line = _Progress(found)
    try:
        return hub.pull(found, line.tell)
    except KeyboardInterrupt:
        line.end()
        _say("Stopped. What came so far is kept: pull it again, which goes on from there.")
        raise
    finally:
        line.end()


def _described(found: Pull) -> str:
    """The files, their size and the licence."""
    files = found.files[0].name if len(found.files) == 1 else f"{len(found.files)} parts, {found.files[0].name} …"
    return visible_line(f"{files} · {size(found.size_bytes)} · licence {found.licence or 'not named'}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


class _Progress:
    """One line that changes on a terminal; elsewhere a line for every tenth."""

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._live = sys.stderr.isatty()
        self._told = 0.0
        self._began: tuple[float, int] | None = None
        self._open = False

    def tell(self, file: HubFile, have: int) -> None:
        """Tell that this much of a file is there."""
        before = self._pull.files[: self._pull.files.index(file)]
        done, whole, now = sum(one.size_bytes for one in before) + have, self._pull.size_bytes, time.monotonic()
        self._began = self._began or (now, done)
        if self._live:
            if now - self._told >= _TICK or have == file.size_bytes:
                self._told, self._open = now, True
                more = " · checking its SHA-256" if have == file.size_bytes else self._left(done, now)
                sys.stderr.write(f"\r\x1b[K{size(done)} of {size(whole)} · {100 * done // whole} %{more}")
                sys.stderr.flush()
        elif 100 * done // whole >= self._told + _STEP or done == whole:
            self._told = 100 * done // whole
            _say(f"{size(done)} of {size(whole)}")

    def end(self) -> None:
        """Leave the line that changes."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False

    def _left(self, done: int, now: float) -> str:
        """How fast it comes, and how long it still takes."""
        since, had = self._began or (now, done)
        if now - since < 1 or done <= had:
            return ""
        rate = (done - had) / (now - since)
        minutes, seconds = divmod(round((self._pull.size_bytes - done) / rate), 60)
        return f" · {size(int(rate))}/s · {minutes}:{seconds:02d} left"
