"""The arguments of `ecoshell bench tasks`, and what they set off."""

import argparse
import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ecoshell.errors import ModelUnavailable, UsageError
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:  # what a run takes is loaded when there is one
    from ecoshell.budget.money import Amount
    from ecoshell.options import Options
    from ecoshell.settings.schema import Settings
    from ecoshell_bench.tasks.results import Result, ResultsFile, Side
    from ecoshell_bench.tasks.suite import Task

LIMIT = 3
"""The exit status of a run whose budget was used up."""
INTERRUPTED = 130
"""The exit status of a run that was stopped."""
_SECONDS = 300
_DEFAULT = ""
"""`--resume` without a file: the one the run would have had anyway."""


def add_tasks(benchmarks: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:  # pyright: ignore[reportPrivateUsage]
    """Add the benchmark to the others."""
    tasks = benchmarks.add_parser("tasks", help="how often requests are done, beside the plainest loop there is")
    add = tasks.add_argument
    add("--suite", type=Path, metavar="FILE", help="tasks, JSON Lines (default: the packaged ones)")
    add("--split", choices=("dev", "test"), help="the half for tuning, or the one that is only measured")
    add("--kind", type=_words, default=(), metavar="KIND,…", help="tasks of these kinds only")
    add("--only", type=_words, default=(), metavar="ID,…", help="these tasks only")
    add("--limit", type=_number, metavar="N", help="the first N of the tasks only")
    add("--model", metavar="NAME", help="who is asked (default: as the settings say)")
    add("--mode", choices=("single", "umi", "auto"), help="who thinks (default: single)")
    add("--strategy", choices=("react", "dfsdt", "tot", "graph"), help="in which order (default: react)")
    add("--registration", choices=("auto", "names", "all"), help="what is registered at first (default: auto)")
    add("--temperature", type=_temperature, default=0.0, metavar="T", help="0 (default) to 2, or auto: as in a chat")
    add("--baseline", action="store_true", help="play each task in a plain function-calling loop, too")
    add("--baseline-only", action="store_true", help="play them in the plain loop alone")
    add("--baseline-model", metavar="NAME", help="the plain loop's model (default: the same)")
    add("--baseline-from", type=Path, metavar="FILE", help="the plain loop's results are those of an earlier --out")
    add("--task-seconds", type=_number, default=_SECONDS, metavar="N", help=f"time for a task (default: {_SECONDS})")
    add("--budget", type=_amount, metavar="AMOUNT", help="end the run before the task after this is spent")
    add("--out", type=Path, metavar="FILE", help="keep the results here (default: in the cache folder)")
    add("--events", type=Path, metavar="DIR", help="write down what happened in each task, a file for each")
    add("--resume", nargs="?", const=_DEFAULT, metavar="FILE", help="go on with the results of an interrupted run")
    return tasks


def run_tasks(args: argparse.Namespace) -> tuple[str, int]:
    """What is to be printed, and the exit status; raises UsageError and EcoshellError."""
    from ecoshell.assembly.parts import load_settings
    from ecoshell.options import Options
    from ecoshell.paths import user_paths
    from ecoshell_bench.tasks.report import Played, as_json, as_table
    from ecoshell_bench.tasks.results import ResultsFile, read_baseline
    from ecoshell_bench.tasks.suite import chosen, read_suite

    tasks = chosen(read_suite(args.suite), split=args.split, kinds=args.kind, only=args.only, limit=args.limit)
    settings = load_settings(user_paths())
    model: str = args.model or settings.model
    loop: str = args.baseline_model or model
    options = Options(model=model, mode=args.mode, strategy=args.strategy, registration=args.registration)
    sides = _sides(args)
    heading = _heading(args, options, loop)
    with ResultsFile(*_place(args, heading), goes_on=args.resume is not None) as results:
        if args.baseline_from is not None:
            for result in read_baseline(args.baseline_from, loop):
                results.known.setdefault((result.id, "baseline"), result)
        status = _play(_Run(args, tasks, sides, results), _settings(settings, args.temperature), options, loop)
        played = Played(
            model,
            results.of("ecoshell", tasks) if "ecoshell" in sides else (),
            loop if "baseline" in sides else None,
            results.of("baseline", tasks),
        )
    return (as_json if args.json else as_table)(played), status


class _Run:
    """What is left to play, and how that is told."""

    def __init__(
        self, args: argparse.Namespace, tasks: "Sequence[Task]", sides: "Sequence[Side]", results: "ResultsFile"
    ) -> None:
        self.results = results
        self.sides = sides
        self.seconds: int = args.task_seconds
        self.keep: Path | None = args.events
        self.budget: Amount | None = args.budget
        done = {(side, one.id) for side in sides for one in results.of(side, tasks)}
        self.left: list[tuple[Task, Side]] = [
            (task, side) for task in tasks for side in sides if (side, task.id) not in done
        ]
        self._tasks = tasks
        self._total = len(tasks) * len(sides)
        self._began = time.monotonic()
        self.now: list[Result] = []
        """What this run has played."""
        _note(f"{self._total - len(self.left)} of {self._total} are there; results go to {results.path}.")

    @property
    def used_up(self) -> bool:
        """Whether the tasks played now have taken the budget; an unknown price is taken for all of it."""
        if self.budget is None:
            return False
        if self.budget.unit == "tokens":
            return sum(one.prompt + one.output for one in self.now) >= self.budget.value
        spent = [one.spent_nano for one in self.now]
        return None in spent or sum(nano or 0 for nano in spent) >= self.budget.value

    def add(self, task: "Task", result: "Result") -> None:
        """Keep a result, and say so."""
        self.results.add(result)
        self.now.append(result)
        self._told(task, result)

    def _told(self, task: "Task", result: "Result") -> None:
        """Say how a task went, and how long the rest will take."""
        played, side = len(self.now), result.side
        number = self._total - len(self.left) + played
        rest = (time.monotonic() - self._began) / played * (len(self.left) - played)
        right = [one.ok for one in self.results.of(side, self._tasks)]
        word = "right" if result.ok else f"wrong: {'; '.join(result.wrong)}"
        _note(
            f"{number:>4}/{self._total} {side:<8} {result.seconds:>6.1f} s  {sum(right):>3} of {len(right)} right, "
            f"{_duration(rest)} left  {visible_line(f'{task.id} {word}')[:160]}"
        )


def _play(run: _Run, settings: "Settings", options: "Options", loop: str) -> int:
    """Play what is left; Ctrl-C ends it, and what was played stays."""
    try:
        if run.left:
            asyncio.run(_play_all(run, settings, options, loop))
    except KeyboardInterrupt:
        _note(f"Stopped. --resume {run.results.path} goes on there.")
        return INTERRUPTED
    if len(run.now) < len(run.left):
        _note(f"The budget is used up. --resume {run.results.path} goes on there, with a budget of its own.")
        return LIMIT
    return 0


async def _play_all(run: _Run, settings: "Settings", options: "Options", loop: str) -> None:
    from dataclasses import replace

    from ecoshell.assembly.parts import open_ledger
    from ecoshell.paths import Paths
    from ecoshell_bench.tasks.ground import ground
    from ecoshell_bench.tasks.playing import STOPS, Models, Player

    if run.keep is not None:
        run.keep.mkdir(parents=True, exist_ok=True)
    with ground() as place:
        ledger = open_ledger(Paths(place.folder, place.folder, place.folder))  # each task has one of its own to write
        models = Models(settings, options, ledger)
        player = Player(place, models, settings, seconds=run.seconds, keep=run.keep)
        asked: dict[Side, Options] = {"ecoshell": options, "baseline": replace(options, model=loop)}
        try:
            for side in run.sides:
                await player.load(str(asked[side].model), side)
            for task, side in run.left:
                result = await player.play(task, side, asked[side])
                if result.error.startswith(STOPS):
                    raise ModelUnavailable(
                        f"{task.id} could not be played: {result.error}",
                        kept=f"What was played is in {run.results.path}.",
                        fix=f"When the model answers again: --resume {run.results.path}",
                    )
                run.add(task, result)
                if run.used_up:
                    break
        finally:
            await models.aclose()
            ledger.close()


def _sides(args: argparse.Namespace) -> "tuple[Side, ...]":
    if args.baseline_only:
        return ("baseline",)
    beside = args.baseline or args.baseline_model or args.baseline_from
    return ("ecoshell", "baseline") if beside else ("ecoshell",)


def _settings(given: "Settings", temperature: float | Literal["auto"]) -> "Settings":
    """The settings as they come, but for the temperature and what the user's say of models: addresses, prices, the
    graphics card.
    """
    usual = type(given)()
    agent = usual.agent.model_copy(update={"temperature": temperature})
    return usual.model_copy(update={"agent": agent, "models": given.models, "local": given.local})


def _heading(args: argparse.Namespace, options: "Options", loop: str) -> dict[str, Any]:
    """What must be the same for a run to go on; which tasks are asked for need not be."""
    suite = "packaged" if args.suite is None else str(args.suite.resolve())
    said = {name: getattr(options, name) for name in ("model", "mode", "strategy", "registration")}
    asked = {"temperature": args.temperature, "task_seconds": args.task_seconds}
    return {"suite": suite, **said, "baseline_model": loop, **asked}


def _place(args: argparse.Namespace, heading: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The results' file; the usual one, unless it is gone on with, is begun anew and the one before stays beside it."""
    from ecoshell.paths import user_paths

    given = args.resume or args.out
    if args.resume and args.out and Path(args.resume) != args.out:
        raise UsageError("--resume and --out name two files.", fix="Name one of them.")
    if given:
        if args.resume and not Path(given).exists():
            raise UsageError(f"{given} is not there to go on with.", fix="Begin it with --out.")
        return Path(given), heading
    digest = hashlib.sha256(json.dumps(heading).encode()).hexdigest()[:16]
    usual = user_paths().cache / "bench" / f"tasks-{digest}.jsonl"
    if args.resume is None and usual.exists():
        usual.replace(usual.with_suffix(".before.jsonl"))
    return usual, heading


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in map(str.strip, text.split(",")) if word)


def _amount(text: str) -> "Amount":
    from ecoshell.budget.money import parse_amount

    return parse_amount(text)


def _temperature(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 2:
        raise UsageError(f"{text!r} is no temperature.", fix="Give a number from 0 to 2, or auto.")
    return value


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 1_000_000):
        raise UsageError(f"{text!r} is not a number from 1 to 1000000.", fix="Give a whole number.")
    return int(text)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if not minutes:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
