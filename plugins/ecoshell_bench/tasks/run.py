"""`ecoshell bench tasks`: run natural requests in temporary workspaces and check their results."""

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ecoshell.assembly import load_settings
from ecoshell.errors import ModelUnavailable, UsageError
from ecoshell.messages import visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.settings.schema import Settings
from ecoshell.tools.workspace import workspace_folder
from ecoshell_bench.printing import note, show_record
from ecoshell_bench.results import ResultsFile, read_results
from ecoshell_bench.tasks.report import Result, Side, as_record
from ecoshell_bench.tasks.runner import FATAL_ERRORS, LIMIT_REACHED
from ecoshell_bench.tasks.suite import CODE, Task, read_code_tasks, read_suite, select_tasks
from ecoshell_bench.tasks.workers import Job, run_all

BUDGET_USED_UP = 3
"""The exit status of a run that ended because of its budget."""
INTERRUPTED = 130
"""The exit status of a run stopped by Ctrl-C."""


def run(args: argparse.Namespace) -> int:
    """Run the tasks that have no result yet, and print the figures; raises EcoshellError."""
    suite = read_suite(args.suite)
    if args.suite is None and (
        CODE in args.kind or any(name.startswith(f"{CODE}-") for name in args.only)
    ):
        suite += read_code_tasks()
    tasks = select_tasks(suite, split=args.split, kinds=args.kind, only=args.only, limit=args.limit)
    settings = load_settings(user_paths())
    model: str = args.model or settings.model
    loop: str = args.baseline_model or model
    options = Options(
        model=model,
        mode=args.mode,
        strategy=args.strategy,
        registration=args.registration,
        advisor=args.advisor,
    )
    sides: tuple[Side, ...] = ("ecoshell",)
    if args.baseline_only:
        sides = ("baseline",)
    elif args.baseline or args.baseline_model or args.baseline_from:
        sides = ("ecoshell", "baseline")
    heading = {  # must match for a run to be resumed; the selection of tasks may differ
        "suite": "packaged" if args.suite is None else str(args.suite.resolve()),
        **{name: getattr(options, name) for name in ("model", "mode", "strategy", "registration")},
        **({"advisor": args.advisor} if args.advisor else {}),
        "baseline_model": loop,
        "temperature": args.temperature,
        "task_seconds": args.task_seconds,
    }
    with closing(
        ResultsFile(_results_path(args, heading), heading, Result, resume=args.resume is not None)
    ) as results:
        if args.baseline_from is not None:
            for result in _read_baseline(args.baseline_from, loop):
                results.by_key.setdefault(result.key, result)
        status = _Run(args, tasks, sides, results).run(settings, options, loop)

        def of(side: Side) -> list[Result]:
            return _results_of(results, side, tasks) if side in sides else []

        record = as_record(
            model, of("ecoshell"), loop if "baseline" in sides else None, of("baseline")
        )
    if not args.json:  # the rows were already printed while the tasks ran
        del record["rows"]
        record["baseline"] = record["baseline"] and {**record["baseline"], "rows": None}
    notes = "\npaired: only tasks with results of both sides; p: McNemar's exact test."
    show_record(record, as_json=args.json, notes=notes)
    return status


def _results_of(results: ResultsFile[Result], side: Side, tasks: Sequence[Task]) -> list[Result]:
    """Return the current results of a side, in the order of the tasks."""
    pairs = [(task, results.by_key.get((task.id, side))) for task in tasks]
    return [result for task, result in pairs if result is not None and result.task == task.digest]


def _read_baseline(path: Path, model: str) -> list[Result]:
    """Read the plain loop's results of an earlier run with this model; raises UsageError."""
    heading, results = read_results(path, Result)
    baseline_model = heading.get("baseline_model")
    if baseline_model != model:
        raise UsageError(
            f"{path} has results of the plain loop with {baseline_model!r}, not {model!r}.",
            fix="Give another file, or set --baseline-model.",
        )
    return [result for result in results if result.side == "baseline"]


def _results_path(args: argparse.Namespace, heading: dict[str, Any]) -> Path:
    """Return the path of the results file; a new run in the default path renames the previous file."""
    path = args.resume or args.out
    if args.resume and args.out and Path(args.resume) != args.out:
        raise UsageError("--resume and --out name different files.", fix="Name one file.")
    if path:
        if args.resume and not Path(path).exists():
            raise UsageError(
                f"{path} does not exist, so it cannot be resumed.", fix="Start it with --out."
            )
        return Path(path)
    digest = hashlib.sha256(json.dumps(heading).encode()).hexdigest()[:16]
    default = user_paths().cache / "bench" / f"tasks-{digest}.jsonl"
    if args.resume is None and default.exists():
        default.replace(default.with_suffix(".before.jsonl"))
    return default


class _Run:
    """Runs the remaining tasks, stores their results and reports progress."""

    def __init__(
        self,
        args: argparse.Namespace,
        tasks: Sequence[Task],
        sides: Sequence[Side],
        results: ResultsFile[Result],
    ) -> None:
        self._args = args
        self._tasks = tasks
        self._sides = sides
        self._results = results
        done = {(side, result.id) for side in sides for result in _results_of(results, side, tasks)}
        self._pending: list[tuple[Task, Side]] = [
            (task, side) for task in tasks for side in sides if (side, task.id) not in done
        ]
        self._total = len(tasks) * len(sides)
        self._started = time.monotonic()
        self._finished: list[Result] = []
        """Results of this run, without those of a resumed one."""
        self._limit_message = ""
        """The message of a team's cap that was reached."""
        note(
            f"{self._total - len(self._pending)} of {self._total} are done; results go to {results.path}."
        )

    def run(self, settings: Settings, options: Options, loop: str) -> int:
        """Run the remaining tasks and return the exit status; Ctrl-C keeps the results so far."""
        args = self._args
        job = Job(
            _task_settings(settings, args.temperature),
            options,
            loop,
            tuple(self._sides),
            args.task_seconds,
            transcripts=args.events is not None,
        )
        if job.transcripts:
            try:
                args.events.mkdir(parents=True, exist_ok=True)
            except OSError as failure:
                message = f"{args.events} cannot be a folder: {failure.strerror}."
                raise UsageError(message, fix="Name another folder with --events.") from failure
        assignments = takewhile(
            lambda _: not self._limit_message and not self._budget_used_up, self._pending
        )
        try:
            with closing(run_all(job, assignments, args.workers, len(self._pending))) as outcomes:
                for task, (result, transcript) in outcomes:
                    self._add(task, result, transcript)
        except KeyboardInterrupt:
            note(f"Stopped. Resume with --resume {self._results.path}.")
            return INTERRUPTED
        if len(self._finished) < len(self._pending):
            reason = self._limit_message or "The budget of this run is used up."
            note(f"{reason} Resume with --resume {self._results.path}.")
            return BUDGET_USED_UP
        return 0

    @property
    def _budget_used_up(self) -> bool:
        """Whether this run has spent its budget; an unknown price counts as all of it."""
        budget = self._args.budget
        if budget is None:
            return False
        if budget.unit == "tokens":
            return sum(result.prompt + result.output for result in self._finished) >= budget.value
        spent = [result.spent_nano for result in self._finished]
        return None in spent or sum(nano or 0 for nano in spent) >= budget.value

    def _add(self, task: Task, result: Result, transcript: str) -> None:
        """Store a result and report progress; raises ModelUnavailable.

        A result cut short by a team's cap is not stored, so that a resumed run repeats the task.
        """
        if result.error.startswith(LIMIT_REACHED):
            self._limit_message = result.error.removeprefix(f"{LIMIT_REACHED}: ")
            return
        if result.error.startswith(FATAL_ERRORS):
            raise ModelUnavailable(
                f"{task.id} could not be run: {result.error}",
                kept=f"The results so far are in {self._results.path}.",
                fix=f"Fix the cause, then add --resume {self._results.path}.",
            )
        if transcript:
            name = f"{task.id.replace('/', '_')}.{result.side}.jsonl"
            (self._args.events / name).write_text(transcript, encoding="utf-8")
        self._results.add(result)
        self._finished.append(result)
        self._note_progress(task, result)

    def _note_progress(self, task: Task, result: Result) -> None:
        """Print the outcome of a task, the success so far and the time left."""
        pending = len(self._pending) - len(self._finished)
        seconds = (time.monotonic() - self._started) / len(self._finished) * pending
        passes = [each.ok for each in _results_of(self._results, result.side, self._tasks)]
        outcome = "right" if result.ok else f"wrong: {'; '.join(result.wrong)}"
        line = visible_line(f"{task.id} {outcome}")[:160]
        note(
            f"{self._total - pending:>4}/{self._total} {result.side:<8} {result.seconds:>6.1f} s  {sum(passes):>3} of "
            f"{len(passes)} right, {_duration(seconds)} left  {line}"
        )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if not minutes:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _task_settings(settings: Settings, temperature: float | str) -> Settings:
    """Return the default settings with the temperature, and the user's settings of models and of a shared ledger."""
    defaults = type(settings)()
    agent = replace(defaults.agent, temperature=temperature)
    project = (
        settings.budget.project or workspace_folder(None).name
    )  # the task's workspace is not a project
    budget = replace(defaults.budget, ledger=settings.budget.ledger, project=project)
    return replace(
        defaults, agent=agent, budget=budget, models=settings.models, local=settings.local
    )
