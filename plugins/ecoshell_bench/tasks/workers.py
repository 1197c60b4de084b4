"""Who plays the tasks of a run: this process, processes beside it, or those of a Ray cluster.

Each plays one task at a time. One that dies is replaced, and the task that it had is played again from its beginning.
"""

import asyncio
import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ecoshell import __version__
from ecoshell.assembly import open_ledger
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell_bench.tasks.playing import Models, TaskRunner
from ecoshell_bench.tasks.report import Result, Side
from ecoshell_bench.tasks.suite import Task
from ecoshell_bench.tasks.workspace import sandbox

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

Turn = tuple[Task, Side]
"""What is played at once."""
Row = tuple[Result, str]
"""What came of it, and its course, empty unless the job keeps it."""
_DEATHS = 3
"""Of the workers of one task, after which the run ends."""
_CONNECTING = 10.0
_STARTING = 120.0
_CLOSING = 60.0
"""Seconds that a worker has to clear up behind it, on a busy machine too."""
_KEPT = "What was played is kept."


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told of a run."""

    settings: "Settings"
    options: Options
    loop: str
    """The plain loop's model."""
    sides: tuple[Side, ...]
    seconds: float
    """Each side's time for a task."""
    keeps: bool
    """Whether courses are wanted."""

    def asked(self, side: Side) -> Options:
        """What a side is asked with."""
        return self.options if side == "ecoshell" else replace(self.options, model=self.loop)


class Worker:
    """Plays tasks one after another in a sandbox of its own; models are loaded at the first one, and stay."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._opened = ExitStack()
        self._runner: TaskRunner | None = None

    def play(self, task: Task, side: Side) -> Row:
        """What came of a task; raises EcoshellError where a model cannot be had."""
        runner = self._runner = self._runner or self._begin()
        result, course = self._loop.run(runner.play(task, side, self._job.asked(side)))
        return result, course if self._job.keeps else ""

    def told(self, task: Task, side: Side) -> Row | EcoshellError:
        """The same for another process: what is raised here is given there."""
        try:
            return self.play(task, side)
        except EcoshellError as failure:
            return failure

    def close(self) -> None:
        """Let the models go, and take the sandbox away."""
        self._opened.close()

    def _begin(self) -> TaskRunner:
        job, opened = self._job, self._opened
        self._loop = opened.enter_context(asyncio.Runner())
        place = opened.enter_context(sandbox())
        folder = place.folder
        # of the plain loop: each shell opens its own, in the home of its task
        ledger = opened.enter_context(closing(open_ledger(Paths(folder, folder, folder), job.settings)))
        models = Models(job.settings, job.options, ledger)
        opened.callback(lambda: self._loop.run(models.aclose()))
        runner = TaskRunner(place, models, job.settings, seconds=job.seconds)
        for side in job.sides:
            self._loop.run(runner.load(str(job.asked(side).model), side))
        return runner


def played(job: Job, turns: Iterator[Turn], workers: int | str, most: int) -> Generator[tuple[Task, Row]]:
    """What came of each turn, as they end; the next one is taken when a worker is free for it.

    `workers` is how many processes play, or the address of a Ray cluster; of neither more than `most`, the number of
    turns. Raises EcoshellError. Whatever ends this ends the workers, in the midst of their tasks if need be.
    """
    if workers == 1 or most == 0:
        with closing(Worker(job)) as worker:
            for task, side in turns:
                yield task, worker.play(task, side)
        return
    with ExitStack() as opened:
        if isinstance(workers, str):
            hire, count = opened.enter_context(_cluster(workers, job))
        else:
            hire, count = partial(_Process, job), workers
        idle = [_Place(hire) for _ in range(min(count, most))]
        # Ctrl-C is for this process alone: what these threads start does not hear it before it has made itself ready
        masked: Any = {"initializer": signal.pthread_sigmask, "initargs": (signal.SIG_BLOCK, {signal.SIGINT})}
        threads = opened.enter_context(ThreadPoolExecutor(len(idle), **masked))
        opened.callback(_close_all, tuple(idle))
        at_work: dict[Future[Row], tuple[_Place, Turn]] = {}
        while True:
            while idle and (turn := next(turns, None)) is not None:
                place = idle.pop()
                at_work[threads.submit(place.play, *turn)] = place, turn
            if not at_work:
                return
            for ended in wait(at_work, return_when=FIRST_COMPLETED).done:
                place, turn = at_work.pop(ended)
                idle.append(place)
                yield turn[0], ended.result()


class _Gone(Exception):
    """A worker died; of what."""


# Processes


class _Process:
    """A process on this machine; `play` raises _Gone, and `close` ends it, whatever it does."""

    def __init__(self, job: Job) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, job), daemon=True)
        self._process.start()
        theirs.close()

    def play(self, task: Task, side: Side) -> Row | EcoshellError:
        try:
            self._pipe.send((task, side))
            return self._pipe.recv()
        except (EOFError, OSError) as failure:
            self._process.join(_CLOSING)
            raise _Gone(f"exit status {self._process.exitcode}") from failure

    def close(self) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGINT)
        self._process.join(_CLOSING)
        self._process.kill()


def _serve(pipe: Connection, job: Job) -> None:
    """Play what is asked for until nobody asks any more, or Ctrl-C is passed on."""
    os.setpgid(0, 0)  # a terminal tells it to all of a group: the process that started this one decides
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError), closing(Worker(job)) as worker:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            pipe.send(worker.told(*pipe.recv()))


# Ray


class _Actor:
    """An actor of a Ray cluster; as a process."""

    def __init__(self, ray: Any, job: Job) -> None:
        self._ray = ray
        self._job = job
        self._actor: Any = None
        self._plays = False

    def play(self, task: Task, side: Side) -> Row | EcoshellError:
        self._plays = True
        try:
            if self._actor is None:
                self._actor = self._ray.remote(num_cpus=1)(Worker).remote(self._job)
            return self._ray.get(self._actor.told.remote(task, side))
        except self._ray.exceptions.RayError as failure:
            raise _Gone(" ".join(str(failure).split())) from failure
        except Exception as failure:  # Ray's client has no kind of its own for a cluster that is lost
            if self._ray.util.client.ray.is_connected() and not isinstance(failure, ConnectionError):
                raise
            told = " ".join(str(failure).split()).rstrip(".")
            fix = "When it is back, or with --workers N here, --resume goes on with the file that the results went to."
            return EcoshellError(f"The cluster is gone: {told}.", kept=_KEPT, fix=fix)
        finally:
            self._plays = False

    def close(self) -> None:
        if self._actor is not None:
            with suppress(Exception):  # of a cluster that is gone, which raises whatever there is
                if not self._plays:  # who plays does not listen
                    self._ray.wait([self._actor.close.remote()], timeout=_CLOSING)
                self._ray.kill(self._actor)


_Hired = _Process | _Actor


class _Place:
    """A worker, and the one that takes its place."""

    def __init__(self, hire: Callable[[], _Hired]) -> None:
        self._hire = hire
        self._worker: _Hired | None = None
        self._closed = False

    def play(self, task: Task, side: Side) -> Row:
        last = ""
        for _ in range(_DEATHS):
            self._worker = worker = self._worker or self._hire()
            try:
                if self._closed:
                    break
                row = worker.play(task, side)
            except _Gone as gone:
                last, self._worker = str(gone), None
                worker.close()
            else:
                if isinstance(row, EcoshellError):
                    raise row
                return row
        raise EcoshellError(
            f"{task.id} could not be played: {_DEATHS} workers died of it, the last one by {last}.",
            kept=_KEPT,
            fix="Look whether memory is short; --resume goes on there, also with fewer workers.",
        )

    def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.close()


def _close_all(places: Sequence[_Place]) -> None:
    """Side by side: each may take as long as a busy machine lets it."""
    with ThreadPoolExecutor(len(places)) as threads:
        list(threads.map(_Place.close, places))


@contextmanager
def _cluster(address: str, job: Job) -> Generator[tuple[Callable[[], _Hired], int]]:
    """What hires actors of the cluster at this address, and how many have room there; raises UsageError."""
    try:
        import_module("grpc")  # what Ray's client needs beyond Ray
        ray: Any = import_module("ray")
    except ImportError as failure:
        raise UsageError(f"{address} needs Ray's client: {failure}.", fix="pip install 'ecoshell[scale]'") from failure
    where = urlsplit(address)
    try:
        socket.create_connection((where.hostname, where.port), _CONNECTING).close()  # at once, where nobody is there
    except OSError as failure:
        fix = "Start it with `ray start --head`; the port is its --ray-client-server-port, usually 10001."
        raise UsageError(f"There is no Ray cluster at {address}: {failure}.", fix=fix) from failure
    try:
        logging.getLogger("ray").setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):  # it warns of what it then raises
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as failure:
        lines = str(failure).strip().split("\n")
        told = " ".join(lines[:1] + lines[-1:] if "Traceback" in str(failure) else lines)
        fix = "`ray status` and the logs in its --temp-dir say what it lacks."
        raise UsageError(f"The Ray cluster at {address} takes nobody: {told}", fix=fix) from failure
    except RuntimeError as failure:  # Ray's word for versions that differ
        told = " ".join(str(failure).split())
        raise UsageError(f"{address}: {told}.", fix="Use the cluster's versions of Ray and Python here.") from failure
    try:
        yield partial(_Actor, ray, job), _room(ray, address)
    finally:
        ray.shutdown()


def _room(ray: Any, address: str) -> int:
    """How many CPUs of a cluster are free, if it has this very ecoshell; raises UsageError."""
    fix = f"Install ecoshell {__version__} in the Python of each of its machines."
    try:
        there = ray.get(ray.remote(num_cpus=0)(version).remote("ecoshell"), timeout=_STARTING)
    except PackageNotFoundError as failure:
        raise UsageError(f"The cluster at {address} has no ecoshell.", fix=fix) from failure
    except TimeoutError as failure:  # Ray's own error of the kind is one, too
        told = f"The cluster at {address} has begun no worker in {_STARTING:.0f} seconds."
        raise UsageError(told, fix="`ray status` says what it waits for.") from failure
    if there != __version__:
        raise UsageError(f"The cluster at {address} has ecoshell {there}, not {__version__}.", fix=fix)
    free = int(ray.available_resources().get("CPU", 0))
    if not free:
        raise UsageError(f"No CPU of the cluster at {address} is free.", fix="`ray status` says who has them.")
    return free
