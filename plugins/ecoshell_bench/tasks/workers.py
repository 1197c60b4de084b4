"""Run the tasks of a run in this process, in worker processes or on a Ray cluster.

Each worker runs one task at a time. A worker that dies is replaced, and its task is run again from the beginning.
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
from typing import Any
from urllib.parse import urlsplit

from ecoshell import __version__
from ecoshell.assembly import open_ledger
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.settings.schema import Settings
from ecoshell_bench.tasks.report import Result, Side
from ecoshell_bench.tasks.runner import Models, TaskRunner
from ecoshell_bench.tasks.suite import Task
from ecoshell_bench.tasks.workspace import sandbox

Assignment = tuple[Task, Side]
Outcome = tuple[Result, str]
"""The result of an assignment and its transcript, which is empty unless the job asks for it."""
_MAX_WORKER_DEATHS = 3
"""Workers that may die with the same task before the run ends."""
_CONNECT_SECONDS = 10.0
_START_SECONDS = 120.0
_CLOSE_SECONDS = 60.0
"""Time for a worker to clean up, generous for busy machines."""
_RESULTS_KEPT = "The results so far are kept."


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a worker needs to know about a run."""

    settings: Settings
    options: Options
    loop_model: str
    sides: tuple[Side, ...]
    seconds: float
    """The time limit of each side for a task."""
    transcripts: bool
    """Whether to return transcripts."""

    def options_of(self, side: Side) -> Options:
        return self.options if side == "ecoshell" else replace(self.options, model=self.loop_model)


class Worker:
    """Runs one task at a time in its own sandbox; the first task loads the models."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._resources = ExitStack()
        self._runner: TaskRunner | None = None

    def run(self, task: Task, side: Side) -> Outcome:
        """Run a task; raises EcoshellError if a model is unavailable."""
        runner = self._runner = self._runner or self._start()
        result, transcript = self._loop.run(runner.run(task, side, self._job.options_of(side)))
        return result, transcript if self._job.transcripts else ""

    def try_run(self, task: Task, side: Side) -> Outcome | EcoshellError:
        """Run a task and return an EcoshellError instead of raising it, for use across processes."""
        try:
            return self.run(task, side)
        except EcoshellError as failure:
            return failure

    def close(self) -> None:
        """Close the models and remove the sandbox."""
        self._resources.close()

    def _start(self) -> TaskRunner:
        job, resources = self._job, self._resources
        self._loop = resources.enter_context(asyncio.Runner())
        box = resources.enter_context(sandbox())
        # This ledger is for the plain loop: each shell opens its own in the home of its task.
        paths = Paths(box.folder, box.folder, box.folder)
        ledger = resources.enter_context(closing(open_ledger(paths, job.settings)))
        models = Models(job.settings, job.options, ledger)
        resources.callback(lambda: self._loop.run(models.aclose()))
        runner = TaskRunner(box, models, job.settings, seconds=job.seconds)
        for side in job.sides:
            self._loop.run(runner.load(str(job.options_of(side).model), side))
        return runner


def run_all(
    job: Job, assignments: Iterator[Assignment], workers: int | str, limit: int
) -> Generator[tuple[Task, Outcome]]:
    """Yield each task with its outcome as it ends; an assignment is taken when a worker becomes free.

    `workers` is a number of processes or the address of a Ray cluster; `limit` bounds the number of workers. Raises
    EcoshellError. Closing the generator ends the workers, even in the middle of a task.
    """
    if workers == 1 or limit == 0:
        with closing(Worker(job)) as worker:
            for task, side in assignments:
                yield task, worker.run(task, side)
        return
    with ExitStack() as resources:
        if isinstance(workers, str):
            start_worker, count = resources.enter_context(_cluster(workers, job))
        else:
            start_worker, count = partial(_Process, job), workers
        idle = [_Slot(start_worker) for _ in range(min(count, limit))]
        # Only this process handles Ctrl-C: processes started from these threads inherit the blocked signal.
        masked: Any = {
            "initializer": signal.pthread_sigmask,
            "initargs": (signal.SIG_BLOCK, {signal.SIGINT}),
        }
        threads = resources.enter_context(ThreadPoolExecutor(len(idle), **masked))
        resources.callback(_close_all, tuple(idle))
        busy: dict[Future[Outcome], tuple[_Slot, Assignment]] = {}
        while True:
            while idle and (assignment := next(assignments, None)) is not None:
                slot = idle.pop()
                busy[threads.submit(slot.run, *assignment)] = slot, assignment
            if not busy:
                return
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                slot, (task, _) = busy.pop(future)
                idle.append(slot)
                yield task, future.result()


class _WorkerDied(Exception):
    """A worker died; the text is the cause."""


# Processes


class _Process:
    """A worker process on this machine; `run` raises _WorkerDied, and `close` ends the process even during a task."""

    def __init__(self, job: Job) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, job), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, task: Task, side: Side) -> Outcome | EcoshellError:
        try:
            self._pipe.send((task, side))
            return self._pipe.recv()
        except (EOFError, OSError) as failure:
            self._process.join(_CLOSE_SECONDS)
            raise _WorkerDied(f"exit status {self._process.exitcode}") from failure

    def close(self) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGINT)
        self._process.join(_CLOSE_SECONDS)
        self._process.kill()


def _serve(pipe: Connection, job: Job) -> None:
    """Run the assignments received until the pipe closes or the parent sends SIGINT."""
    os.setpgid(0, 0)  # a terminal signals its whole process group; only the parent should react
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError), closing(Worker(job)) as worker:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            pipe.send(worker.try_run(*pipe.recv()))


# Ray


class _Actor:
    """A worker on a Ray cluster, with the same methods as _Process."""

    def __init__(self, ray: Any, job: Job) -> None:
        self._ray = ray
        self._job = job
        self._actor: Any = None
        self._busy = False

    def run(self, task: Task, side: Side) -> Outcome | EcoshellError:
        self._busy = True
        try:
            if self._actor is None:
                self._actor = self._ray.remote(num_cpus=1)(Worker).remote(self._job)
            return self._ray.get(self._actor.try_run.remote(task, side))
        except self._ray.exceptions.RayError as failure:
            raise _WorkerDied(" ".join(str(failure).split())) from failure
        except Exception as failure:  # Ray's client has no exception class for a lost cluster
            if self._ray.util.client.ray.is_connected() and not isinstance(
                failure, ConnectionError
            ):
                raise
            cause = " ".join(str(failure).split()).rstrip(".")
            fix = "Add --resume FILE with the results file once the cluster is back, or use --workers N."
            return EcoshellError(
                f"The connection to the cluster was lost: {cause}.", kept=_RESULTS_KEPT, fix=fix
            )
        finally:
            self._busy = False

    def close(self) -> None:
        if self._actor is not None:
            with suppress(Exception):  # a lost cluster raises exceptions of any class
                if not self._busy:  # a busy actor handles no other call
                    self._ray.wait([self._actor.close.remote()], timeout=_CLOSE_SECONDS)
                self._ray.kill(self._actor)


_WorkerHandle = _Process | _Actor


class _Slot:
    """Holds one worker and replaces it when it dies."""

    def __init__(self, start_worker: Callable[[], _WorkerHandle]) -> None:
        self._start_worker = start_worker
        self._worker: _WorkerHandle | None = None
        self._closed = False

    def run(self, task: Task, side: Side) -> Outcome:
        cause = ""
        for _ in range(_MAX_WORKER_DEATHS):
            self._worker = worker = self._worker or self._start_worker()
            try:
                if self._closed:
                    break
                outcome = worker.run(task, side)
            except _WorkerDied as death:
                cause, self._worker = str(death), None
                worker.close()
            else:
                if isinstance(outcome, EcoshellError):
                    raise outcome
                return outcome
        raise EcoshellError(
            f"{task.id} could not be run: {_MAX_WORKER_DEATHS} workers died with it, the last with {cause}.",
            kept=_RESULTS_KEPT,
            fix="Check the free memory, then add --resume FILE, with fewer workers if needed.",
        )

    def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.close()


def _close_all(slots: Sequence[_Slot]) -> None:
    """Close all slots at the same time, because each may take long on a busy machine."""
    with ThreadPoolExecutor(len(slots)) as threads:
        list(threads.map(_Slot.close, slots))


@contextmanager
def _cluster(address: str, job: Job) -> Generator[tuple[Callable[[], _WorkerHandle], int]]:
    """Connect to a Ray cluster; yield a function that starts a worker and the number of free CPUs.

    Raises UsageError.
    """
    try:
        import_module("grpc")  # needed by Ray's client only
        ray: Any = import_module("ray")
    except ImportError as failure:
        raise UsageError(
            f"{address} needs Ray's client: {failure}.", fix="pip install 'ecoshell[scale]'"
        ) from failure
    url = urlsplit(address)
    try:  # fails at once if nothing listens, unlike Ray's own attempt
        socket.create_connection((url.hostname, url.port), _CONNECT_SECONDS).close()
    except OSError as failure:
        fix = "Start it with `ray start --head`; the port is its --ray-client-server-port, usually 10001."
        raise UsageError(f"There is no Ray cluster at {address}: {failure}.", fix=fix) from failure
    try:
        logging.getLogger("ray").setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):  # the same text is raised afterwards
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as failure:
        lines = str(failure).strip().split("\n")
        cause = " ".join(lines[:1] + lines[-1:] if "Traceback" in str(failure) else lines)
        fix = "Check `ray status` and the logs in the cluster's --temp-dir."
        raise UsageError(
            f"The Ray cluster at {address} refused the connection: {cause}", fix=fix
        ) from failure
    except RuntimeError as failure:  # raised when versions differ
        cause = " ".join(str(failure).split())
        raise UsageError(
            f"{address}: {cause}.", fix="Use the cluster's versions of Ray and Python here."
        ) from failure
    try:
        yield partial(_Actor, ray, job), _free_cpus(ray, address)
    finally:
        ray.shutdown()


def _free_cpus(ray: Any, address: str) -> int:
    """Return the number of free CPUs of a cluster with the same version of ecoshell; raises UsageError."""
    fix = f"Install ecoshell {__version__} in the Python of every machine of the cluster."
    try:
        cluster_version = ray.get(
            ray.remote(num_cpus=0)(version).remote("ecoshell"), timeout=_START_SECONDS
        )
    except PackageNotFoundError as failure:
        raise UsageError(f"The cluster at {address} has no ecoshell.", fix=fix) from failure
    except TimeoutError as failure:  # the base class of Ray's GetTimeoutError
        message = f"The cluster at {address} started no worker within {_START_SECONDS:.0f} seconds."
        raise UsageError(message, fix="`ray status` shows what it waits for.") from failure
    if cluster_version != __version__:
        raise UsageError(
            f"The cluster at {address} has ecoshell {cluster_version}, not {__version__}.", fix=fix
        )
    cpus = int(ray.available_resources().get("CPU", 0))
    if not cpus:
        raise UsageError(
            f"The cluster at {address} has no free CPU.", fix="`ray status` shows what uses them."
        )
    return cpus
