"""Runs untrusted patterns, queries and templates in a separate process with time and memory limits.

A pattern or a query can block the interpreter or exhaust memory, and a thread cannot be ended from outside. Processes
are reused; one that exceeds its limits is killed and replaced. A worker ends with this process: the end of a pipe on
which nothing is ever sent signals it (SIGIO). Without an address space limit (macOS), only the time limit applies.
"""

import contextlib
import fcntl
import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from ecoshell.errors import ToolError

T = TypeVar("T")

MEMORY_BYTES = 512_000_000  # address space of one process
SECONDS = 20.0  # default limit, for work outside a tool call
_MAX_PROCESSES = 4
_MAX_IDLE_PROCESSES = 2
_START_SECONDS = 20.0  # longest wait for a free and loaded process
_POLL_SECONDS = 0.05
_PRELOADED = ("ecoshell.tools.builtin", "regex", "jmespath")
_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "TZ")  # others may hold keys


@dataclass(frozen=True, slots=True)
class CancelToken:
    """Tells a tool in a thread that its call was cancelled or timed out."""

    deadline: float  # by `time.monotonic`
    cancelled: threading.Event = field(default_factory=threading.Event)


cancel_token: ContextVar[CancelToken | None] = ContextVar("cancel_token", default=None)


def checkpoint() -> None:
    """Raise ToolError if the current call was cancelled or timed out; long loops call this."""
    token = cancel_token.get()
    if token is not None and (token.cancelled.is_set() or time.monotonic() > token.deadline):
        raise ToolError("The call was stopped.")


def _time_left(seconds: float) -> float:
    """Limit a time in seconds to the remaining time of the current call."""
    token = cancel_token.get()
    return seconds if token is None else max(0.0, min(seconds, token.deadline - time.monotonic()))


def in_worker(
    function: Callable[..., T], *arguments: object, seconds: float = SECONDS, once: bool = False
) -> T:
    """Run a pure module-level function in a worker process and return its result; blocks.

    `seconds` limits the work itself, without the wait for a process, and never exceeds the current call's time. The
    function, its arguments and its result are pickled. Raises ToolError for any exception and for exceeded limits.
    In a worker, the function is called directly. `once` ends the process afterwards, for libraries that keep much
    memory.
    """
    if _workers.inside:
        return function(*arguments)
    return cast("T", _workers.answer(pickle.dumps((function, arguments)), seconds, once=once))


def warm_worker() -> None:
    """Start a process in the background, so that it is loaded when work arrives."""
    _workers.warm()


class _Workers:
    """The pool of worker processes."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._slots = threading.BoundedSemaphore(_MAX_PROCESSES)
        self.inside = False  # whether this process is a worker

    def warm(self) -> None:
        if not self._idle:
            with contextlib.suppress(OSError):  # Reported when work arrives.
                self._idle.append(_Worker())

    def answer(self, job: bytes, seconds: float, *, once: bool) -> object:
        wait = _time_left(_START_SECONDS)
        latest_start = time.monotonic() + wait
        if not self._slots.acquire(timeout=wait):
            raise ToolError(f"No process was free within {wait:g} s. Run fewer calls at once.")
        try:
            worker = None
            while self._idle and worker is None:
                worker = self._idle.pop()
                if worker.process.poll() is not None:  # It has ended in the meantime.
                    worker.end()
                    worker = None
            try:
                worker = worker or _Worker()
            except OSError as error:
                reason = error.strerror or error
                raise ToolError(f"No worker process could be started: {reason}.") from error
            try:
                return worker.answer(job, seconds, latest_start)
            finally:
                if once or worker.busy or len(self._idle) >= _MAX_IDLE_PROCESSES:
                    worker.end()
                    self.warm()
                else:
                    self._idle.append(worker)
        finally:
            self._slots.release()


class _Worker:
    """The parent's side of one worker process."""

    def __init__(self) -> None:
        from multiprocessing.connection import Pipe

        paths = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        self._pipe, theirs = Pipe()
        parent_alive, self._alive = Pipe(duplex=False)
        with theirs, parent_alive:
            code = f"from ecoshell.worker import serve; serve({parent_alive.fileno()})"
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                cwd="/",
                env=variables
                | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(parent_alive.fileno(),),
                start_new_session=True,  # Ctrl-C and a closing terminal do not reach it
            )
        self._ready = self.busy = False

    def answer(self, job: bytes, seconds: float, latest_start: float) -> object:
        """Return a job's result; raises ToolError. If `busy` is set afterwards, the worker must be ended."""
        try:
            if not self._ready:
                self._reply(latest_start, "No worker process was ready in time. Try again.")
                self._ready = True
            self.busy = True
            seconds = _time_left(seconds)
            self._pipe.send(seconds)
            self._pipe.send_bytes(job)
            late = f"Stopped: it took longer than {seconds:.3g} s. Give it less to do."
            succeeded, outcome = pickle.loads(self._reply(time.monotonic() + seconds, late))
        except (EOFError, OSError) as gone:
            self.busy = True
            memory = f"{MEMORY_BYTES // 1_000_000} MB of memory"
            text = f"Stopped: it took more than {memory}, or crashed. Give it less to do."
            raise ToolError(text) from gone
        self.busy = False
        if not succeeded:
            raise ToolError(outcome)
        return outcome

    def _reply(self, deadline: float, timeout_message: str) -> bytes:
        """Return the worker's next message; raises ToolError with `timeout_message` at the deadline."""
        while not self._pipe.poll(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise ToolError(timeout_message)
            checkpoint()
        return self._pipe.recv_bytes()

    def end(self) -> None:
        """Kill the process; a thread collects it, since releasing its memory may take a second."""
        self._pipe.close()
        self._alive.close()
        self.process.kill()
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            threading.Thread(target=self.process.wait, name="worker", daemon=True).start()


_workers = _Workers()


def serve(parent_alive: int) -> None:
    """Run jobs from standard input within limits enforced by the system, until `parent_alive` ends."""
    from multiprocessing.connection import Connection

    _workers.inside = True
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, MEMORY_BYTES)):
        _, hard = resource.getrlimit(limit)
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # not supported by this system
            resource.setrlimit(limit, (lowest, lowest))
    # The system ends the process at the pipe's end, even during a computation that runs no Python code. Standard input
    # would not do: its messages raise the signal too, some only after they were read.
    fcntl.fcntl(parent_alive, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent_alive, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)
    pipe = Connection(0)
    for name in _PRELOADED:
        importlib.import_module(name)
    pipe.send_bytes(b"ready")
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        while True:
            seconds, job = pipe.recv(), pipe.recv_bytes()
            signal.setitimer(signal.ITIMER_REAL, seconds + 1)  # in case the parent does not end it
            reply = _run_job(job)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send_bytes(reply)


def _run_job(job: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(job)
        return pickle.dumps((True, function(*arguments)))
    except MemoryError:
        os._exit(1)  # the remaining memory would not suffice for the next job
    except ToolError as error:
        return pickle.dumps((False, str(error)))
    except Exception as error:  # noqa: BLE001 - reported in the parent
        return pickle.dumps((False, f"Failed: {type(error).__name__}: {error}"))
