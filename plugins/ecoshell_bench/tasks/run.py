"""`ecoshell bench tasks`: natural requests in throw-away workspaces, checked by what came of them."""

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.assembly import load_settings
from ecoshell.errors import ModelUnavailable, UsageError
from ecoshell.messages import visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.tools.workspace import workspace_folder
from ecoshell_bench.printing import note, show_record
from ecoshell_bench.results import ResultsFile, read_results
from ecoshell_bench.tasks.playing import LIMIT_REACHED, STOPS
from ecoshell_bench.tasks.report import Result, Side, as_record
from ecoshell_bench.tasks.suite import CODE, Task, chosen, read_code_tasks, read_suite
from ecoshell_bench.tasks.workers import Job, played

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

LIMIT = 3
"""The exit status of a run whose budget was used up."""
INTERRUPTED = 130
"""The exit status of a run that was stopped."""


def run(args: argparse.Namespace) -> int:
    """Play what is not there yet, and print; raises UsageError and EcoshellError."""
    suite = read_suite(args.suite)
    if args.suite is None and (CODE in args.kind or any(name.startswith(f"{CODE}-") for name in args.only)):
        suite += read_code_tasks()
    tasks = chosen(suite, split=args.split, kinds=args.kind, only=args.only, limit=args.limit)
    settings = load_settings(user_paths())
    model: str = args.model or settings.model
    loop: str = args.baseline_model or model
    options = Options(model=model, mode=args.mode, strategy=args.strategy, registration=args.registration)
    sides: tuple[Side, ...] = ("ecoshell",)
    if args.baseline_only:
        sides = ("baseline",)
    elif args.baseline or args.baseline_model or args.baseline_from:
        sides = ("ecoshell", "baseline")
    said = {name: getattr(options, name) for name in ("model", "mode", "strategy", "registration")}
    heading = {  # what must be the same for a run to go on; which tasks are asked for need not be
        "suite": "packaged" if args.suite is None else str(args.suite.resolve()),
        **said,
        "baseline_model": loop,
        "temperature": args.temperature,
        "task_seconds": args.task_seconds,
    }
    going_on = args.resume is not None
    place = _place(args, heading)
    with closing(ResultsFile(place, heading, Result, goes_on=going_on)) as results:
        if args.baseline_from is not None:
            for result in _baseline(args.baseline_from, loop):
                results.known.setdefault(result.key, result)
        status = _Run(args, tasks, sides, results).play(settings, options, loop)

        def of(side: Side) -> list[Result]:
            return _of(results, side, tasks) if side in sides else []

        record = as_record(model, of("ecoshell"), loop if "baseline" in sides else None, of("baseline"))
    if not args.json:  # a row for each task is told while they are played
        del record["rows"]
        record["baseline"] = record["baseline"] and {**record["baseline"], "rows": None}
    show_record(record, as_json=args.json, notes="\npaired: only tasks that both have played; p: McNemar's exact test.")
    return status


def _of(results: ResultsFile[Result], side: Side, tasks: Sequence[Task]) -> list[Result]:
    """The results of a side at these tasks, as they are now, in the order of the tasks."""
    found = [(task, results.known.get((task.id, side))) for task in tasks]
    return [result for task, result in found if result is not None and result.task == task.digest]


def _baseline(path: Path, model: str) -> list[Result]:
    """What the plain loop did in an earlier run with this model; raises UsageError."""
    heading, results = read_results(path, Result)
    whose = heading.get("baseline_model")
    if whose != model:
        raise UsageError(f"{path}: the plain loop there has the model {whose!r}, not {model!r}.", fix="Name another.")
    return [result for result in results if result.side == "baseline"]


def _place(args: argparse.Namespace, heading: dict[str, Any]) -> Path:
    """The results' file; the usual one, unless it is gone on with, is begun anew and the one before stays beside it."""
    given = args.resume or args.out
    if args.resume and args.out and Path(args.resume) != args.out:
        raise UsageError("--resume and --out name two files.", fix="Name one of them.")
    if given:
        if args.resume and not Path(given).exists():
            raise UsageError(f"{given} is not there to go on with.", fix="Begin it with --out.")
        return Path(given)
    digest = hashlib.sha256(json.dumps(heading).encode()).hexdigest()[:16]
    usual = user_paths().cache / "bench" / f"tasks-{digest}.jsonl"
    if args.resume is None and usual.exists():
        usual.replace(usual.with_suffix(".before.jsonl"))
    return usual


class _Run:
    """What is left to play, and how that is told."""

    def __init__(
        self, args: argparse.Namespace, tasks: Sequence[Task], sides: Sequence[Side], results: ResultsFile[Result]
    ) -> None:
        self._args = args
        self._tasks = tasks
        self._sides = sides
        self._results = results
        done = {(side, one.id) for side in sides for one in _of(results, side, tasks)}
        self._left: list[tuple[Task, Side]] = [
            (task, side) for task in tasks for side in sides if (side, task.id) not in done
        ]
        self._total = len(tasks) * len(sides)
        self._began = time.monotonic()
        self._now: list[Result] = []
        """What this run has played."""
        self._limit = ""
        """What was said of a team's cap that is reached."""
        note(f"{self._total - len(self._left)} of {self._total} are there; results go to {results.path}.")

    def play(self, settings: "Settings", options: Options, loop: str) -> int:
        """Play what is left; Ctrl-C ends it, and what was played stays. Gives the exit status.

        Settings are the usual ones but for the temperature and what the user's say of models (addresses, prices, the
        graphics card) and of a ledger that is shared.
        """
        args, usual = self._args, type(settings)()
        agent = usual.agent.model_copy(update={"temperature": args.temperature})
        project = settings.budget.project or workspace_folder(None).name  # not that of a task's workspace
        budget = usual.budget.model_copy(update={"ledger": settings.budget.ledger, "project": project})
        shared = {"agent": agent, "budget": budget, "models": settings.models, "local": settings.local}
        told = usual.model_copy(update=shared)
        job = Job(told, options, loop, tuple(self._sides), args.task_seconds, keeps=args.events is not None)
        if job.keeps:
            try:
                args.events.mkdir(parents=True, exist_ok=True)
            except OSError as failure:
                told = f"{args.events} cannot be a folder: {failure.strerror}."
                raise UsageError(told, fix="Name another one with --events.") from failure
        turns = takewhile(lambda _: not self._limit and not self._used_up, self._left)
        try:
            with closing(played(job, turns, args.workers, len(self._left))) as rows:
                for task, (result, course) in rows:
                    self._add(task, result, course)
        except KeyboardInterrupt:
            note(f"Stopped. --resume {self._results.path} goes on there.")
            return INTERRUPTED
        if len(self._now) < len(self._left):
            told = self._limit or "The budget is used up; the next run has one of its own."
            note(f"{told} --resume {self._results.path} goes on there.")
            return LIMIT
        return 0

    @property
    def _used_up(self) -> bool:
        """Whether the tasks played now have taken the budget; an unknown price is taken for all of it."""
        budget = self._args.budget
        if budget is None:
            return False
        if budget.unit == "tokens":
            return sum(one.prompt + one.output for one in self._now) >= budget.value
        spent = [one.spent_nano for one in self._now]
        return None in spent or sum(nano or 0 for nano in spent) >= budget.value

    def _add(self, task: Task, result: Result, course: str) -> None:
        """Keep a result, and say how it went, and how long the rest will take; raises ModelUnavailable.

        What a team's cap cut short is played again, when there is room.
        """
        if result.error.startswith(LIMIT_REACHED):
            self._limit = result.error.removeprefix(f"{LIMIT_REACHED}: ")
            return
        if result.error.startswith(STOPS):
            raise ModelUnavailable(
                f"{task.id} could not be played: {result.error}",
                kept=f"What was played is in {self._results.path}.",
                fix=f"Once that is mended: --resume {self._results.path}",
            )
        if course:
            name = f"{task.id.replace('/', '_')}.{result.side}.jsonl"
            (self._args.events / name).write_text(course, encoding="utf-8")
        self._results.add(result)
        self._now.append(result)
        played = len(self._now)
        left = len(self._left) - played
        seconds = (time.monotonic() - self._began) / played * left
        minutes = round(seconds / 60)
        rest = f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
        right = [one.ok for one in _of(self._results, result.side, self._tasks)]
        word = "right" if result.ok else f"wrong: {'; '.join(result.wrong)}"
        said = visible_line(f"{task.id} {word}")[:160]
        note(
            f"{self._total - left:>4}/{self._total} {result.side:<8} {result.seconds:>6.1f} s  {sum(right):>3} of "
            f"{len(right)} right, {rest if minutes else f'{seconds:.0f} s'} left  {said}"
        )
