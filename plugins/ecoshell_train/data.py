"""Training data: requests, generated workspaces and the calls that serve them (GLPFT, SPEC §4).

Tasks are generated from a grammar of requests (`frames.toml`). The shell runs each one with a scripted model that
knows the right calls. The tools run in a temporary folder, and the prompts are recorded. So every observation is
real, and training prompts equal the prompts in use, token for token.
"""

import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshell.agent import Approval, NonInteractive
from ecoshell.api import Agent
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import ApprovalWanted, CallFinished, CallStarted
from ecoshell.messages import (
    META_TOOLS,
    TOOL_REGISTER,
    Attachment,
    Call,
    Observation,
    ToolSchema,
    Usage,
)
from ecoshell.models import Delta, PromptSize, Reply, Request
from ecoshell.models.local import LocalModel
from ecoshell.models.quoting import Quoting
from ecoshell.options import Options
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell.planning.catp.tpl import render
from ecoshell.tools import Limits, ResultSize, Tool
from ecoshell_train import worlds
from ecoshell_train.worlds import (
    Made,
    Split,
    World,
    frames,
    here,
    matched,
    nothing,
    only,
    step,
    whole,
)

ROLES = ("planner", "caller", "summarizer")
_LANGUAGES = ("de: ", "fr: ", "es: ")
_SUM = " => "
"""Separates a phrasing from the expression of its calculation."""
_TYPO_SHARE = 0.06
_COMBINED_SHARE = 0.2
"""Share of requests that ask for two things."""
_REPOSITORY_SHARE = 0.4
"""Share of workspaces that are repositories although the request needs none."""
_FOLDER_SHARE = 0.25
_REFUSED_SHARE = 0.06
_PLANNED_SHARE = 0.1
"""Share of tasks with a plan; five times as much for plans with parallel parts."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the reply to learn, as tokens; `earlier` are spans of other learned replies in the prompt."""

    role: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def learned(self) -> tuple[tuple[int, int], ...]:
        """The spans of all learned replies in the prompt and the reply together."""
        return (*self.earlier, (len(self.prompt), len(self.prompt) + len(self.reply)))


@dataclass(frozen=True, slots=True)
class Step:
    """A call and its reason."""

    rationale: str
    call: Call


@dataclass(frozen=True, slots=True)
class Task:
    """A request in a workspace, the calls that serve it, and the answer as a function of their results.

    - `way`: the phrasing of the request, before values are inserted.
    - `setup`: commands that prepare the workspace.
    - `refused`: the user refuses calls that need approval.
    - `apart`: the numbers of steps of independent parts; empty if the steps form one part.
    - `drafted`: a plan is written first, as by the strategy `graph`.
    """

    kind: str
    way: str
    request: str
    files: Mapping[str, str]
    steps: tuple[Step, ...]
    answer: Callable[[Sequence[str]], str]
    setup: tuple[tuple[str, ...], ...] = ()
    attachments: tuple[Attachment, ...] = ()
    refused: bool = False
    apart: tuple[int, ...] = ()
    drafted: bool = False

    @property
    def plan(self) -> GraphPlan:
        """The plan of the steps: each depends on the previous one of its part."""
        uses, nodes = Counter[str](), list[Node]()
        for size in self.apart or (len(self.steps),):
            waits: tuple[str, ...] = (TASK,)
            for name in [number.call.name for number in self.steps[len(nodes) : len(nodes) + size]]:
                uses[name] += 1
                nodes.append(Node(name, waits, uses[name]))
                waits = (nodes[-1].label,)
        return GraphPlan(tuple(nodes))

    @property
    def digest(self) -> str:
        """A hash that identifies the task."""
        content = (self.request, sorted(self.files.items()), self.steps, self.setup, self.refused)
        content = (*content, self.drafted) if self.drafted else content
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def ways(kind: str, split: Split) -> list[str]:
    """Return the phrasings of a kind of request."""
    return [way.partition(_SUM)[0] for way in here(frames()["ways"][kind], split)]


def kinds() -> list[str]:
    """Return the kinds of requests."""
    return [kind for kind in frames()["ways"] if kind != "both"]


# -- kinds: functions that return calls with reasons, and a function from results to the parts of the answer


def _looked(world: World, kind: str) -> Made:
    """Return a file, a part of it or a folder."""
    chance, lines = world.chance, dict[str, int]()
    if kind == "value":
        file, _, value = world.settings()
        return only("read_file", path=file), lambda _: {"result": value}
    if kind == "list":
        folder = world.about["dir"] = world.word("dirs")
        for _ in range(chance.randint(1, 5)):
            world.files[
                f"{folder}/{world.name(chance.choice(('txt', 'md', 'jpg', 'csv', 'pdf')))}"
            ] = world.text(1, 2)
        return only("list_files", path=folder), whole
    if kind == "here":
        world.file(world.text(1, 2))
        world.file(world.text(1, 2))
        return only("list_files"), whole
    ending, text = (
        world.any_file() if kind == "read" and chance.random() < 0.6 else ("", world.text(1, 5))
    )
    if kind == "line":
        text = world.text(5, 12)
        number = chance.randint(1, len(text.splitlines()))
        world.about["n"] = str(number)
        lines = {"start_line": number, "end_line": number}
    return only("read_file", path=world.file(text, ending), **lines), whole


def _counted(world: World, kind: str) -> Made:
    """Count the lines, words or bytes of a file, or occurrences of a word."""
    if kind == "occurs":
        word = world.about["word"] = world.word("nouns")
        lines = [world.sentence() + world.chance.choice(("\n", f" {word}\n")) for _ in range(6)]
        call, pattern = (
            only("count_text", path=world.file("".join(lines)), text=word),
            r"occurs (\d+)",
        )
    else:
        call, pattern = (
            only("count_text", path=world.file(world.text(1, 30))),
            rf"(\d+) {kind[:-1]}",
        )
    return call, lambda results: {"result": matched(pattern, results[-1])}


def _search(world: World, _: str) -> Made:
    word = world.about["word"] = world.word("nouns")
    folder = world.chance.choice(("", "", f"{world.word('dirs')}/"))
    world.files[f"{folder}{world.name()}"] = (
        f"{world.text(0, 2)}{world.word('people')} has the {word}.\n"
    )
    for _other in range(world.chance.randint(1, 3)):
        world.files[f"{folder}{world.name()}"] = world.text(1, 2).replace(word, "stone")
    return only("search_text", text=word), whole


def _time(world: World, kind: str) -> Made:
    if kind == "now":
        return only("current_time"), lambda results: {"result": results[-1].partition(",")[0]}
    city = world.about["city"] = world.word("cities")
    return only("current_time", timezone=city), lambda results: {
        "result": matched(r"(\d+:\d+)", results[-1])
    }


def _write(world: World, _: str) -> Made:
    new, text = world.name(), world.word("texts")
    world.about |= {"new": new, "text": world.chance.choice((f'"{text}"', f"'{text}'", text))}
    return only("write_file", path=new, content=text), nothing


def _moved(world: World, kind: str) -> Made:
    """Rename, copy, delete or move a file, or create a folder, by a command."""
    about, commands = (
        world.about,
        {"rename": "mv {file} {new}", "copy": "cp {file} {new}", "delete": "rm {file}"},
    )
    commands |= {"mkdir": "mkdir {dir}", "move": "mkdir -p {dir} && mv {file} {dir}/"}
    if kind in ("mkdir", "move"):
        about["dir"] = world.word("dirs")
    if kind != "mkdir":
        world.file(world.text(1, 2))
    if kind in ("rename", "copy"):
        about["new"] = world.name()
    if kind == "move" and world.chance.random() < 0.5:  # The folder exists.
        world.files[f"{about['dir']}/{world.name()}"] = world.text(1, 1)
        commands["move"] = "mv {file} {dir}/"
    return only("run_command", command=commands[kind].format(**about)), nothing


def _ran(world: World, kind: str) -> Made:
    """Return the output of a command or a program."""
    chance = world.chance
    if kind == "checksum":
        call = only("run_command", command=f"sha256sum {world.file(world.text())}")
        return call, lambda results: {"result": results[-1].split()[0]}
    if kind == "largest":
        for size in chance.sample(range(1, 12), k=3):
            world.file(world.text(size, size))
        return only("run_command", command="ls -S | head -1"), whole
    output = f"{world.word('nouns')} {chance.randint(10, 999)}"
    if chance.random() < 0.7:
        script, command = f"{world.folder}{world.name('py')}", "python3"
        a, b = chance.randint(2, 99), chance.randint(2, 99)
        programs = (
            f'print("{output}")\n',
            f"print({a} * {b})\n",
            f"x = {a}\nprint('sum', x + {b})\n",
        )
        world.files[script] = chance.choice(programs)
    else:
        script, command = f"{world.folder}{world.name('sh')}", "sh"
        world.files[script] = f"#!/bin/sh\necho {output}\n"
    world.about["script"] = script
    return only("run_command", command=f"{command} {script}"), whole


_SUMS = {
    "percent": "{n}% * {m}",
    "times": "{n} * {m}",
    "plus": "{n} + {m}",
    "minus": "{n} - {m}",
    "divide": "{n} / {m}",
    "part": "{n} / {m}",
    "bill": "{n} * {m} + {k}",
    "share": "({m} + {k}) / {n}",
    "root": "sqrt({n})",
}


def _calculated(world: World, kind: str) -> Made:
    chance, operand = world.chance, dict[str, str]()
    if kind == "percent":
        operand["n"] = str(chance.randint(1, 99))
    elif kind == "divide":
        parts = chance.randint(2, 60)
        operand |= {"n": str(parts * chance.randint(2, 90)), "m": str(parts)}
    elif kind == "part":
        operand |= zip(
            ("part", "part_de", "part_fr", "part_es", "m"), world.word("parts"), strict=True
        )
    elif kind == "bill":
        operand["word"] = world.word("nouns")
    elif kind == "share":
        operand["n"] = str(chance.randint(2, 12))
    world.about |= {"n": world.number(), "m": world.number(), "k": world.number(), **operand}
    return only("calculate", expression=_SUMS[kind].format(**world.about)), whole


def _convert(world: World, _: str) -> Made:
    unit, to = world.word("units")
    world.about |= {"n": world.number(), "unit": unit, "to": to}
    return only("convert_units", value=world.about["n"], from_unit=unit, to_unit=to), whole


def _table(world: World, kind: str) -> Made:
    """Evaluate a column of a table, or count rows with a value."""
    chance = world.chance
    column, key = world.word("columns"), chance.choice(("name", "day", "who", "place"))
    rows = [
        (world.word("people"), str(chance.randint(1, 400))) for _ in range(chance.randint(4, 9))
    ]
    file = world.file(f"{key},{column}\n" + "".join(f"{a},{b}\n" for a, b in rows), "csv")
    world.about |= {"column": key if kind == "rows" else column, "value": rows[0][0]}
    expression = {
        "column_sum": f"sum(float(r['{column}']) for r in rows)",
        "column_mean": f"round(sum(float(r['{column}']) for r in rows) / len(rows), 2)",
        "column_max": f"max(float(r['{column}']) for r in rows)",
        "rows": f"sum(r['{key}'] == '{rows[0][0]}' for r in rows)",
    }[kind]
    return only(
        "run_python",
        code=f"import csv\nrows = list(csv.DictReader(open('{file}')))\nprint({expression})",
    ), whole


def _field(world: World, _: str) -> Made:
    people = world.chance.sample(world.words("people"), k=3)
    key = world.about["key"] = world.chance.choice(("email", "city", "phone"))
    values = {
        person: f"{person.lower()}@example.org" if key == "email" else str(world.word("cities"))
        for person in people
    }
    file = world.file(
        json.dumps([{"name": person, key: values[person]} for person in people], indent=1), "json"
    )
    name = world.about["name"] = people[world.chance.randrange(3)]
    return only("read_file", path=file), lambda _: {"result": values[name]}


def _git(world: World, kind: str) -> Made:
    author, _, file = world.repository()[-1]
    commands = {
        "git_last": "log -1 --format=%an",
        "git_message": "log -1 --format=%s",
        "git_count": "rev-list --count HEAD",
    }
    if kind == "git_commit":
        text = world.word("texts")
        world.about |= {"file": file, "text": f'"{text}"'}
        world.setup.append(("sh", "-c", f"echo more >> {file}"))
        commands[kind] = f'add {file} && git commit -m "{text}"'
    calls = [step("I ask git.", "run_command", command=f"git {commands[kind]}")]
    if kind == "git_last":
        return calls, lambda _: {"result": author}
    return calls, nothing if kind == "git_commit" else whole


def _unserved(world: World, _: str) -> Made:
    world.about |= {
        "thing": world.word("things"),
        "name": world.word("people"),
        "city": world.word("cities"),
    }
    world.file(world.text(1, 2))
    return [], nothing


def _missing(world: World, _: str) -> Made:
    """Read a file that is in another folder than the request says."""
    folder, other = world.chance.sample(world.words("dirs"), k=2)
    name, text = world.name(), world.text(1, 2)
    world.about |= {"file": name, "dir": folder, "found": f"{other}/{name}"}
    world.files |= {f"{other}/{name}": text, f"{folder}/{world.name()}": world.text(1, 1)}
    return [
        step(f"I read {folder}/{name}.", "read_file", path=f"{folder}/{name}"),
        step("", "list_files"),
        step(f"I read {other}/{name}.", "read_file", path=f"{other}/{name}"),
    ], whole


_KINDS: tuple[tuple[Callable[[World, str], Made], str, str], ...] = (
    (_looked, "", "read line list here"),
    (_looked, "value", "value"),
    (_counted, "", "lines words bytes occurs"),
    (_search, "", "search"),
    (_time, "", "time now"),
    (_write, "", "write"),
    (_moved, "", "rename copy delete mkdir move"),
    (_ran, "", "run checksum largest"),
    (_calculated, "calculate", " ".join(_SUMS)),
    (_convert, "", "convert"),
    (_table, "code", "column_sum column_mean column_max rows"),
    (_field, "value", "field"),
    (_git, "", "git_last git_message git_count git_commit"),
    (_unserved, "", "unserved"),
    (_missing, "", "missing"),
)
_MAKERS = {**worlds.MAKERS, **{kind: make for make, _, names in _KINDS for kind in names.split()}}
_ALIKE = {**worlds.ALIKE, **{kind: alike for _, alike, names in _KINDS for kind in names.split()}}
"""Kinds with the answer and the reason of another kind."""
_ALONE = worlds.ALONE | {
    "here",
    "largest",
    "missing",
    "list",
    "git_last",
    "git_message",
    "git_count",
    "git_commit",
}
"""Kinds whose workspaces contain no other files."""
_IN_FOLDERS = (
    *(
        "read",
        "value",
        "line",
        "lines",
        "words",
        "bytes",
        "occurs",
        "run",
        "field",
        "injected",
        "edit",
        "edit_read",
    ),
    *(
        "column_sum",
        "column_max",
        "rows",
        "sum_if",
        "sum_all",
        "names_if",
        "top",
        "cell",
        "log_count",
        "log_of",
    ),
    *(
        "json_path",
        "json_keys",
        "swap",
        "drop",
        "two_read",
        "two_words",
        "table_tells",
        "text_tells",
        "numbers_tell",
    ),
)
"""Kinds whose file may be in a folder."""
_SURPRISING = frozenset(
    (
        "missing",
        "repair",
        "crash",
        "not_executable",
        "wrong_name",
        "wrong_value",
        "wrong_count",
        "wrong_delete",
    )
)
"""Kinds whose later calls cannot be planned before the first one has failed."""
_REFUSABLE = ("run_command", "run_python", "write_file", "edit_file")
"""Tools whose calls a user may refuse."""
_FREQUENCIES = {
    **dict.fromkeys(worlds.MAKERS, 1.2),
    **{"shell_tells": 6, "shell_does": 5, "git_tells": 2.5, "git_does": 2},
    **dict.fromkeys(("run", "search", "write", "edit", "edit_read", "swap"), 2),
    "read": 3,
    **{"unserved": 3, "talk": 5, "value": 3, "repair": 5, "crash": 2},
    **{
        "table_tells": 9,
        "table_does": 3,
        "text_tells": 3,
        "text_does": 3,
        "numbers_tell": 3,
        "story": 6,
    },
}
"""Relative frequencies of kinds, 1 by default; kinds of `worlds` are about half of all tasks."""


# -- tasks


def generate(count: int, seed: int, split: Split = "train") -> Iterator[Task]:
    """Yield `count` tasks, some with several requests; the same seed yields the same tasks."""
    names = [*kinds(), "talk"]
    frequencies = [_FREQUENCIES.get(name, 1) for name in names]
    for number in range(count):
        chance = random.Random(f"{split} {seed} {number}")
        task = make(chance.choices(names, frequencies)[0], World(chance, split))
        while (
            task.steps and task.kind.count("+") < 2 and chance.random() < _COMBINED_SHARE
        ):  # Sometimes three.
            other = make(
                chance.choices(names, frequencies)[0], World(chance, split, taken=task.files)
            )
            plain = (
                not other.setup and not task.setup and not {task.kind, other.kind} & worlds.ALONE
            )
            if other.steps and plain and other.kind not in task.kind.split("+"):
                task = _both(task, other, chance)
        if (
            not any(program[0] == "git" for program in task.setup)
            and chance.random() < _REPOSITORY_SHARE
        ):
            task = replace(task, setup=(*task.setup, *World(chance, split).history()))
        if chance.random() < _REFUSED_SHARE:
            task = _refused(task)
        plain = not task.refused and not {*task.kind.split("+")} & _SURPRISING
        share = _PLANNED_SHARE * (5 if len(task.apart) > 1 else 1)
        yield replace(
            task, drafted=plain and random.Random(f"graph {split} {seed} {number}").random() < share
        )


def _refused(task: Task) -> Task:
    """Return the task with the first call that needs approval refused, and an answer that says so."""
    names = [step.call.name for step in task.steps]
    at = next((at for at, name in enumerate(names) if name in _REFUSABLE), None)
    if at is None or "+" in task.kind or task.way.startswith(_LANGUAGES):
        return task
    request = frames()["answers"]["refused"].format(tool=names[at])

    def answer(_: Sequence[str]) -> str:
        return request

    return replace(task, steps=task.steps[: at + 1], answer=answer, refused=True)


def _both(first: Task, second: Task, chance: random.Random) -> Task:
    """Return both requests as one task."""
    way = chance.choice(frames()["ways"]["both"]["and"])
    at = len(first.steps)
    answers = first.request.rstrip(".") + ("" if first.request[-1] in ".?!" else ".")
    return Task(
        f"{first.kind}+{second.kind}",
        f"{first.way} + {second.way}",
        way.format(a=answers, b=second.request),
        {**first.files, **second.files},
        (*first.steps, *second.steps),
        lambda results: f"{first.answer(results[:at])}\n{second.answer(results[at:])}",
        apart=(*(first.apart or (at,)), *(second.apart or (len(second.steps),))),
    )


def make(kind: str, world: World) -> Task:
    """Return a random task of a kind: values are drawn and inserted into a phrasing."""
    chance, about = world.chance, world.about
    if kind == "talk":
        request, answer = chance.choice(here([*frames()["talk"].items()], world.split))
        return Task(kind, request, _typed(request, world), _others(world), (), lambda _: answer)
    request_text, _, expression = chance.choice(
        here(frames()["ways"][kind], world.split)
    ).partition(_SUM)
    if kind in _IN_FOLDERS and chance.random() < _FOLDER_SHARE:
        world.folder = f"{world.word('dirs')}/"
    calls, read = _MAKERS[kind](world, expression or kind)
    language, way = (
        request_text.split(": ", 1) if request_text.startswith(_LANGUAGES) else ("", request_text)
    )
    texts = frames()
    answers: dict[str, str] = {**texts["answers"], **texts["answers"].get(language, {})}
    form = answers.get(kind) or answers[_ALIKE[kind]]
    reason = texts["rationales"].get(kind) or texts["rationales"].get(_ALIKE[kind], "")
    steps = tuple(Step(why or reason.format(**about), call) for why, call in calls)
    other_files = _others(world) if kind not in _ALONE else {}
    request = _typed(way.format(**about), world)
    files = {**other_files, **world.files}
    return Task(
        kind,
        way,
        request,
        files,
        steps,
        lambda results: form.format(**{**about, **read(results)}),
        tuple(world.setup),
        apart=(1,) * len(steps) if kind in worlds.APART else (),
    )


def _others(world: World) -> dict[str, str]:
    """Return files that are unrelated to the request, some of them in folders."""
    names: dict[str, str] = {}
    folders = [name for name in world.words("dirs") if name != world.about.get("dir")]
    for _ in range(world.chance.randint(0, 4)):
        ending, text = world.any_file()
        folder = f"{world.chance.choice(folders)}/" if world.chance.random() < 0.3 else ""
        names[f"{folder}{world.name(ending)}"] = text
    return names


def _typed(text: str, world: World) -> str:
    """Return the request as a user might type it, with varied capitals, courtesy and typos outside names."""
    chance, names = world.chance, world.about.values()
    if (
        text[0].islower()
        and chance.random() < 0.4
        and not any(text.startswith(name) for name in names)
    ):
        text = text[0].upper() + text[1:]
    if chance.random() < 0.08:
        text = f"{chance.choice(('hey, ', 'hi, ', 'ok, ', 'quick one: '))}{text}"
    if chance.random() < 0.1 and text[-1] not in "?.!":
        text += chance.choice((" please", ".", " thanks", " pls", "!"))
    if chance.random() < _TYPO_SHARE:
        plain = [
            word
            for word in re.finditer(r"\b[a-z]{4,}\b", text)
            if not any(word[0] in name for name in names)
        ]
        if plain:
            word = chance.choice(plain)
            at = chance.randrange(word.start() + 1, word.end() - 1)
            text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text


def joined(examples: Iterable[Example]) -> list[Example]:
    """Merge examples that continue an earlier one, so that their common prompt is computed once."""
    merged: list[Example] = []
    latest: dict[str, int] = {}
    for example in examples:
        at = latest.get(example.role)
        if at is not None and example.prompt[: merged[at].learned[-1][1]] == (
            *merged[at].prompt,
            *merged[at].reply,
        ):
            merged[at] = replace(example, earlier=merged[at].learned)
        else:
            latest[example.role] = len(merged)
            merged.append(example)
    return merged


# -- playing


class _Gold:
    """A scripted model that serves a task correctly and records prompts in the format of a local model.

    `schemas` are the tools that it could call.
    """

    def __init__(self, local: LocalModel, task: Task) -> None:
        self.traits = replace(local.traits, trained="gold", name="gold")
        self._local, self._task = local, task
        self._made = 0
        self.examples: list[Example] = []
        self.schemas: tuple[ToolSchema, ...] = ()
        self._returned: list[tuple[str, Mapping[str, Any], str]] = []

    def returned(self, name: str, arguments: Mapping[str, Any], observation: str) -> None:
        """Record the result of a call from the shell's events."""
        self._returned.append((name, arguments, observation))

    @property
    def seen(self) -> list[str]:
        """The results of the calls in the order of the steps; parallel calls end in any order."""
        if not self._task.drafted:
            return [observation for *_, observation in self._returned]
        pending, results = [*self._returned], list[str]()
        for call in [task_step.call for task_step in self._task.steps]:
            matches = (
                at for at, entry in enumerate(pending) if entry[:2] == (call.name, call.arguments)
            )
            at = next(matches, None)
            if at is not None:
                results.append(pending.pop(at)[2])
        return results

    def size(self, request: Request) -> PromptSize:
        return self._local.size(request)

    def count(self, text: str) -> int:
        return self._local.count(text)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        for _ in range(_EVENT_DELAY):  # Events arrive late, and a planned call may not run.
            if len(self._returned) >= self._made:
                break
            await asyncio.sleep(0)
        text, call = self._said(request)
        self.schemas = request.callable_now
        self._made += call is not None and call.name != TOOL_REGISTER
        reply_text = text if call else Quoting(request).shortened(text)
        self.examples.append(
            Example(request.role, *self._local.exchange(request, reply_text, call))
        )
        if text:
            yield Delta(text)
        yield Reply(text, () if call is None else (call,), Usage(1, 1))

    async def aclose(self) -> None:
        """Keep the local model, which belongs to the caller."""

    def _said(self, request: Request) -> tuple[str, Call | None]:
        steps, at = self._task.steps, len(self.seen)
        if "plan ::=" in request.grammar:
            return render(
                self._task.plan, "numbered"
            ) if steps else f"Answer: {self._task.answer([])}", None
        if node := _NODE_REQUEST.search(request.task):
            labels = [message.label for message in self._task.plan.nodes]
            return "", steps[labels.index(node[1])].call
        if request.role == "planner":
            why, follows = (
                (steps[at].rationale, "caller") if at < len(steps) else ("", "conclusion")
            )
            return f"{why} Next: {follows}.".strip(), None
        if at == len(steps) or request.role == "summarizer":
            return self._task.answer(self.seen), None
        why, call = steps[at].rationale, steps[at].call
        if all(schema.name != call.name for schema in request.callable_now):
            why, call = f"I register {call.name}.", Call(TOOL_REGISTER, {"tool_name": call.name})
        return "" if request.role == "caller" else why, call


_NODE_REQUEST = re.compile(r"^It is (\S+) in the plan ", re.MULTILINE)
"""The prompt line that requests the call of a node."""
_EVENT_DELAY = 10_000
"""Cycles of the event loop to wait for the result of a call."""
_SINGLE = Options(mode="single")
_UNLIMITED = Limits(result=ResultSize(10_000_000))
"""Recorded results are already truncated."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A tool that returns recorded results.

    `waiting` are the expected calls and their results, shared by all tools of a turn.
    """

    schema: ToolSchema
    waiting: list[tuple[Call, tuple[str, bool]]]
    effects = frozenset[Any]()
    price_nano = 0
    limits = _UNLIMITED

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Return the recorded result, or an error for an unexpected call."""
        call, (observation, ok) = self.waiting[0] if self.waiting else (Call(""), ("", False))
        if call.name != self.schema.name or call.arguments != arguments:
            return Observation("This call was not made.", ok=False)
        del self.waiting[0]
        return Observation(observation, ok=ok)


@dataclass(frozen=True, slots=True)
class _User(NonInteractive):
    """Approves or refuses all calls."""

    refuses: bool

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("no" if self.refuses else "once")


async def play(
    task: Task,
    local: LocalModel,
    options: Options = _SINGLE,
    *,
    tools: Sequence[Tool | str] = ("?*",),
    past: Callable[[Path, Path], str | None] = lambda home, workspace: None,
) -> list[Example]:
    """Return the examples of a task, or none if the shell fails to serve it.

    `past` writes the session that the task continues into a home folder, for a workspace, and returns its ID.
    """
    gold = await _served(task, local, options, tools, past)
    return gold.examples if gold else []


async def replayed(
    task: Task,
    observations: Sequence[tuple[str, bool]],
    schemas: Sequence[ToolSchema | str],
    local: LocalModel,
    options: Options,
    *,
    past: Callable[[Path, Path], str | None] = lambda home, workspace: None,
) -> list[Example]:
    """Like `play`, but calls return recorded results and whether they succeeded.

    A pattern among the schemas selects tools of the shell.
    """
    waiting = [*zip((step.call for step in task.steps), observations, strict=True)]
    tools = [
        task_step if isinstance(task_step, str) else _Recorded(task_step, waiting)
        for task_step in schemas
    ]
    reply = await play(task, local, options, tools=tools, past=past)
    return [] if waiting else reply


async def observed(
    task: Task, local: LocalModel
) -> tuple[tuple[ToolSchema, ...], list[str]] | None:
    """Return the tools and the results of a task, or None if the shell fails to serve it."""
    gold = await _served(task, local, _SINGLE, ("?*",), lambda home, workspace: None)
    return gold and (
        tuple([event for event in gold.schemas if event.name not in META_TOOLS]),
        gold.seen,
    )


async def _served(
    task: Task,
    local: LocalModel,
    options: Options,
    tools: Sequence[Tool | str],
    past: Callable[[Path, Path], str | None],
) -> _Gold | None:
    """Return the scripted model after it has served the task, or None if that fails."""
    gold = _Gold(local, task)
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "project"
        workspace.mkdir()
        for name, text in task.files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text, encoding="utf-8")
        for program in task.setup:
            await asyncio.to_thread(
                subprocess.run, program, cwd=workspace, check=True, capture_output=True
            )
        here = replace(options, workspace=workspace, resume=past(home, workspace))
        if task.drafted:
            here = replace(here, strategy="graph")
        called: dict[str, tuple[str, Mapping[str, Any]]] = {}
        async with Agent(
            gold, tools=tools, home=home, user=_User(task.refused), options=here
        ) as agent:
            with suppress(EcoshellError):
                async for event in agent.stream(task.request, task.attachments):
                    if isinstance(event, CallStarted):
                        called[event.id] = (event.name, event.arguments)
                    if isinstance(event, CallFinished):
                        gold.returned(*called[event.id], event.observation)
            served = len(gold.seen) == len(task.steps) and agent.outcome.answer == task.answer(
                gold.seen
            )
    return gold if served else None


def examples(
    local: LocalModel,
    count: int,
    seed: int,
    split: Split,
    ways: Sequence[Options],
    keep: Path | None = None,
) -> list[Example]:
    """Return the examples of `count` tasks, each played with all options; `keep` is the file of `played`.

    Raises UsageError.
    """
    tasks = generate(count, seed, split)
    plays = (
        (f"{how.mode} {how.registration} {task.digest}", partial(play, task, local, how))
        for task in tasks
        for how in ways
    )
    return [example for _, line in played(plays, keep) for example in line]


def played(
    plays: Iterable[tuple[str, Callable[[], Coroutine[Any, Any, list[Example]]]]],
    keep: Path | None = None,
) -> list[tuple[str, list[Example]]]:
    """Return the key and the examples of each play; a file keeps them, so that each is played once.

    Raises UsageError for a damaged file.
    """
    existing, pending = _read_played(keep) if keep else {}, list[str]()
    if keep:
        keep.parent.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        with keep.open("a", encoding="utf-8") if keep else nullcontext() as file:
            for key, play in plays:
                pending.append(key)
                if key not in existing:
                    existing[key] = await play()
                    lines = [
                        [example.role, example.prompt, example.reply] for example in existing[key]
                    ]
                    if file:
                        print(
                            json.dumps([key, lines], separators=(",", ":")), file=file, flush=True
                        )

    asyncio.run(run())
    return [(key, existing[key]) for key in pending]


def _read_played(file: Path) -> dict[str, list[Example]]:
    """Return the examples in a file of played tasks; removes an incomplete last line."""
    if not file.is_file():
        return {}
    text = file.read_bytes()
    if text and not text.endswith(b"\n"):
        text = text[: text.rfind(b"\n") + 1]
        os.truncate(
            file, len(text)
        )  # Rewriting the file could lose everything if it were interrupted.
    examples: dict[str, list[Example]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            key, text_line = json.loads(line)
            examples[str(key)] = [
                Example(str(role), (*map(int, prompt),), (*map(int, reply),))
                for role, prompt, reply in text_line
            ]
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{file}, line {number} is not a played task: {error}.",
                fix="Remove the line or the file.",
            ) from error
    return examples
