"""Runs what a model or a stranger wrote (patterns, queries, templates) in a process of its own, where limits hold.

A pattern or a query can hold the interpreter or take all memory, and nothing ends a thread that does. The process is
used again and again; one that is over its time or its memory is killed, and another one takes its place. It ends with
this one: by itself where it waits, by a signal of the system (SIGIO) where it works. Where the system has no limit of
the address space (macOS), that of time alone holds.
"""

import contextlib
import fcntl
import importlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from ecoshell.errors import ToolError

T = TypeVar("T")

MEMORY = 512_000_000
"""Bytes of address space of one process."""
SECONDS = 20.0
"""For work that is bounded by no call of a tool."""
_AT_ONCE = 4
_KEPT = 2
"""Processes that are kept while there is nothing to do."""
_BEGINNING = 20.0
"""Seconds that a process, and room for it, is waited for before the time of the work begins."""
_LOOK = 0.05
"""Seconds between two looks at whether anybody still waits."""
_PRELOADED = ("ecoshell.tools.builtin", "regex", "jmespath")
_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "TZ")
"""What the process is told of this one's environment, which may hold keys."""


@dataclass(frozen=True, slots=True)
class CancelToken:
    """Lets a tool that works in a thread notice that nobody waits for it any more."""

    deadline: float
    """On the clock of `time.monotonic`."""
    cancelled: threading.Event = field(default_factory=threading.Event)


cancel_token: ContextVar[CancelToken | None] = ContextVar("cancel_token", default=None)


def checkpoint() -> None:
    """End a tool that runs in a thread once its call was cancelled or is out of time; long loops call this."""
    held = cancel_token.get()
    if held is not None and (held.cancelled.is_set() or time.monotonic() > held.deadline):
        raise ToolError("The call was stopped.")


def _time_left(seconds: float) -> float:
    """So many seconds, or as many as the call has left."""
    held = cancel_token.get()
    return seconds if held is None else max(0.0, min(seconds, held.deadline - time.monotonic()))


def in_worker(function: Callable[..., T], *arguments: object, seconds: float = SECONDS, once: bool = False) -> T:
    """What a function gives that changes nothing and is found by its name; blocks, for the time of the call at most.

    The seconds are those of the work: they begin when a process is there for it, however busy the machine is. The
    function, its arguments and its result are pickled. Raises ToolError for whatever it raises, and where it takes
    too long or too much memory. Within a worker it is called there and then. `once` has the process end afterwards,
    for what leaves much of its memory behind, as large libraries do.
    """
    if _workers.inside:
        return function(*arguments)
    return cast("T", _workers.answer(pickle.dumps((function, arguments)), seconds, once=once))


def warm_worker() -> None:
    """Have a process loaded by the time there is work; it loads by itself, this only starts it."""
    _workers.warm()


class _Workers:
    """The processes of this one."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self.inside = False
        """Whether this process is a worker itself."""

    def warm(self) -> None:
        if not self._idle:
            with contextlib.suppress(OSError):  # said when there is work
                self._idle.append(_Worker())

    def answer(self, job: bytes, seconds: float, *, once: bool) -> object:
        patience = _time_left(_BEGINNING)
        latest = time.monotonic() + patience
        if not self._room.acquire(timeout=patience):
            raise ToolError(f"It waited {patience:g} s for others to end: do one thing after another.")
        try:
            worker = None
            while self._idle and worker is None:
                worker = self._idle.pop()
                if worker.process.poll() is not None:  # it has ended meanwhile
                    worker.end()
                    worker = None
            try:
                worker = worker or _Worker()
            except OSError as error:
                raise ToolError(f"No process could be started for it: {error.strerror or error}.") from error
            try:
                return worker.answer(job, seconds, latest)
            finally:
                if once or worker.busy or len(self._idle) >= _KEPT:
                    worker.end()
                    self.warm()
                else:
                    self._idle.append(worker)
        finally:
            self._room.release()


class _Worker:
    """One process, seen from here."""

    def __init__(self) -> None:
        from multiprocessing.connection import Connection

        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        known = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from ecoshell.worker import serve; serve()"],
                cwd="/",
                env=known | {"PYTHONPATH": path, "PYTHONUTF8": "1"},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C and a closing terminal do not reach it
            )
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        self._ready = self.busy = False

    def answer(self, job: bytes, seconds: float, latest: float) -> object:
        """What came of a job that is begun by `latest`; raises ToolError. Where it is `busy` then, it must be ended."""
        try:
            if not self._ready:
                self._reply(latest, "It was not begun: no process was ready for it in time. Try again.")
                self._ready = True
            self.busy = True
            seconds = _time_left(seconds)
            self._pipe.send(seconds)
            self._pipe.send_bytes(job)
            late = f"It was stopped: it took longer than {seconds:.3g} s. Give it less to do."
            well, outcome = pickle.loads(self._reply(time.monotonic() + seconds, late))
        except (EOFError, OSError) as gone:
            self.busy = True
            memory = f"{MEMORY // 1_000_000} MB of memory"
            raise ToolError(f"It was stopped: it took more than {memory}, or broke down. Give it less to do.") from gone
        self.busy = False
        if not well:
            raise ToolError(outcome)
        return outcome

    def _reply(self, until: float, late: str) -> bytes:
        """What it says next; raises ToolError, in these words where that takes too long."""
        while (left := until - time.monotonic()) <= 0 or not self._pipe.poll(min(_LOOK, left)):
            if left <= 0:
                raise ToolError(late)
            checkpoint()
        return self._pipe.recv_bytes()

    def end(self) -> None:
        """Kill it; the system may take a second to take back what it held, which nobody waits for."""
        self._pipe.close()
        self.process.kill()
        with contextlib.suppress(RuntimeError):  # this process is ending itself
            threading.Thread(target=self.process.wait, name="worker", daemon=True).start()


_workers = _Workers()


def serve() -> None:
    """Do one job after another, read from standard input until that ends, within limits that the system keeps."""
    from multiprocessing.connection import Connection

    _workers.inside = True
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, MEMORY)):
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that does not know it
            resource.setrlimit(what, (least, least))
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    pipe = Connection(0)
    for name in _PRELOADED:
        importlib.import_module(name)
    pipe.send_bytes(b"ready")
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    with contextlib.suppress(EOFError, OSError):  # nobody asks any more
        while True:
            seconds, job = pipe.recv(), pipe.recv_bytes()
            # While it works it ends when the other process does, and soon after the time is up, without any code that
            # runs for it. Nothing may be sent to and fro meanwhile: that, too, would be a signal, and end it.
            signal.setitimer(signal.ITIMER_REAL, seconds + 1)
            fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
            reply = _done(job)
            fcntl.fcntl(0, fcntl.F_SETFL, flags)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send_bytes(reply)


def _done(job: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(job)
        return pickle.dumps((True, function(*arguments)))
    except MemoryError:
        os._exit(1)  # what is left of it would be missed by the next job
    except ToolError as error:
        return pickle.dumps((False, str(error)))
    except Exception as error:  # noqa: BLE001 - a fence: whatever it is, it is told where it was asked for
        return pickle.dumps((False, f"It failed: {type(error).__name__}: {error}"))
