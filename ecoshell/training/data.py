"""What models are trained on: requests, workspaces made up for them, and the calls that serve them (GLPFT, SPEC §4).

Tasks are generated from a grammar of requests (`frames.toml`). The shell itself plays each: a model that knows the
calls answers it, the tools run in a folder that is thrown away, and what the shell asked is kept as it was asked. So
every observation is true, and what is learned is, token for token, what the model reads when it is used.
"""

import asyncio
import hashlib
import json
import random
import re
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ecoshell.agent import Approval, NonInteractive
from ecoshell.api import Agent
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import ApprovalWanted, CallFinished
from ecoshell.messages import TOOL_REGISTER, Attachment, Call, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request
from ecoshell.models.local import LocalModel
from ecoshell.models.replying import Quoting
from ecoshell.options import Options
from ecoshell.tools import Tool
from ecoshell.training import worlds
from ecoshell.training.worlds import Made, Split, World, frames, is_here

ROLES = ("planner", "caller", "summarizer")
_LANGUAGES = ("de: ", "fr: ", "es: ")
_SUM = " => "
"""Comes before the expression of a way that tells a sum."""
_TYPOS = 0.06
_TWO = 0.2
"""Shares of requests with a typo, and of those that ask for two things."""


@dataclass(frozen=True, slots=True)
class Example:
    """One thing that a model is to say: the tokens of a prompt and of the reply to it."""

    role: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    earlier: tuple[tuple[int, int], ...] = ()
    """Where in the prompt stand replies that are learned as well."""

    @property
    def learned(self) -> tuple[tuple[int, int], ...]:
        """Where the replies stand in prompt and reply together, the last of them the reply itself."""
        return (*self.earlier, (len(self.prompt), len(self.prompt) + len(self.reply)))


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a trajectory, and why it is made."""

    rationale: str
    call: Call


@dataclass(frozen=True, slots=True)
class Task:
    """A request in a workspace, the calls that serve it, and the answer, given what the calls returned."""

    kind: str
    way: str
    """How it is said, before anything was put in."""
    request: str
    files: Mapping[str, str]
    steps: tuple[Step, ...]
    answer: Callable[[Sequence[str]], str]
    setup: tuple[tuple[str, ...], ...] = ()
    """Programs that are run in the workspace first."""
    attachments: tuple[Attachment, ...] = ()
    """What goes along with the request."""

    @property
    def digest(self) -> str:
        """What tells the task from others."""
        told = (self.request, sorted(self.files.items()), self.steps, self.setup)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def ways(kind: str, split: Split) -> list[str]:
    """The ways in which a kind of request is said."""
    return [way.partition(_SUM)[0] for way in _said(kind, split)]


def _said(kind: str, split: Split) -> list[str]:
    said: list[str] = frames()["ways"][kind]
    return [way for at, way in enumerate(said) if is_here(at, split)]


def kinds() -> list[str]:
    """The kinds of requests."""
    return [kind for kind in frames()["ways"] if kind != "both"]


# -- tasks


def generate(count: int, seed: int, split: Split = "train") -> Iterator[Task]:
    """So many tasks; the same seed makes the same ones."""
    for number in range(count):
        chance = random.Random(f"{split} {seed} {number}")
        first = _Maker(chance, split).make(_kind(chance))
        if first.steps and chance.random() < _TWO:
            second = _Maker(chance, split, taken=first.files).make(_kind(chance))
            plain = not second.setup and not first.setup and not {first.kind, second.kind} & worlds.ALONE
            if second.steps and plain and second.kind != first.kind:
                first = _both(first, second, chance)
        yield first


_OFTEN = {
    **dict.fromkeys(worlds.MAKERS, 1.2),
    **dict.fromkeys(("read", "run", "search", "write", "edit", "edit_read"), 2),
    **{"unserved": 3, "talk": 4, "value": 3, "repair": 3, "crash": 2},
}
"""How often a kind is drawn, against one that is not named; worlds of their own are about half of all tasks."""


def _kind(chance: random.Random) -> str:
    names = [*kinds(), "talk"]
    return chance.choices(names, [_OFTEN.get(name, 1) for name in names])[0]


def _both(one: Task, two: Task, chance: random.Random) -> Task:
    """Two requests as one: the calls of both, and both answers."""
    way = chance.choice(frames()["ways"]["both"]["and"])
    at = len(one.steps)

    return Task(
        f"{one.kind}+{two.kind}",
        f"{one.way} + {two.way}",
        way.format(a=one.request.rstrip(".") + ("" if one.request[-1] in ".?!" else "."), b=two.request),
        {**one.files, **two.files},
        (*one.steps, *two.steps),
        lambda seen: f"{one.answer(seen[:at])}\n{two.answer(seen[at:])}",
    )


class _Maker(World):
    """Makes up one task: what it is about is drawn by chance, and put into a way to say it."""

    def make(self, kind: str) -> Task:
        """A task of a kind."""
        if kind == "talk":
            said = list(frames()["talk"].items())
            request, answer = self.chance.choice([one for at, one in enumerate(said) if is_here(at, self.split)])
            return Task(kind, request, self._typed(request, {}), self._others(), (), lambda _: answer)
        said, _, expression = self.chance.choice(_said(kind, self.split)).partition(_SUM)
        if kind in worlds.MAKERS:
            calls, read = worlds.MAKERS[kind](self, expression or kind)
        else:
            calls, read = cast("Made", getattr(self, f"make_{kind}")())
        language, way = said.split(": ", 1) if said.startswith(_LANGUAGES) else ("", said)
        texts = frames()
        answers: dict[str, str] = {**texts["answers"], **texts["answers"].get(language, {})}
        form = answers.get(kind) or answers[_ALIKE[kind]]
        reason = texts["rationales"].get(kind) or texts["rationales"].get(_ALIKE.get(kind, ""), "")
        about = self.about

        def answered(seen: Sequence[str]) -> str:
            return form.format(**{**about, **read(seen)})

        steps = tuple(Step(why or reason.format(**about), call) for why, call in calls)
        others = self._others() if kind not in _ALONE else {}
        request = self._typed(way.format(**about), about)
        return Task(kind, way, request, {**others, **self.files}, steps, answered, tuple(self.setup))

    def _others(self) -> dict[str, str]:
        return {self.name(): self.text(1, 3) for _ in range(self.chance.randint(0, 3))}

    def _typed(self, said: str, about: Mapping[str, str]) -> str:
        """The request as a person types it: with or without capitals, courtesy and typos; names stay as they are."""
        chance = self.chance
        if said[0].islower() and chance.random() < 0.4 and not any(said.startswith(one) for one in about.values()):
            said = said[0].upper() + said[1:]
        if chance.random() < 0.08:
            said = f"{chance.choice(('hey, ', 'hi, ', 'ok, ', 'quick one: '))}{said}"
        if chance.random() < 0.1 and said[-1] not in "?.!":
            said += chance.choice((" please", ".", " thanks", " pls", "!"))
        if chance.random() < _TYPOS:
            plain = [one for one in re.finditer(r"\b[a-z]{4,}\b", said) if not any(one[0] in v for v in about.values())]
            if plain:
                word = chance.choice(plain)
                at = chance.randrange(word.start() + 1, word.end() - 1)
                said = said[:at] + said[at + 1] + said[at] + said[at + 2 :]
        return said

    # -- kinds; each gives its calls with their reasons, and how the answer's parts are read from what they returned

    def make_read(self) -> Made:
        return self._one("read_file", {"path": self.file(self.text())}), _whole

    def make_value(self) -> Made:
        file, _, value = self.settings()
        return self._one("read_file", {"path": file}), lambda _: {"result": value}

    def make_line(self) -> Made:
        text = self.text(5, 12)
        self.about["n"] = n = str(self.chance.randint(1, len(text.splitlines())))
        file = self.file(text)
        return self._one("read_file", {"path": file, "start_line": int(n), "end_line": int(n)}), _whole

    def make_list(self) -> Made:
        folder = self.about["dir"] = self.word("dirs")
        for _ in range(self.chance.randint(1, 5)):
            self.files[f"{folder}/{self.name(self.chance.choice(('txt', 'md', 'jpg', 'csv', 'pdf')))}"] = self.text(
                1, 2
            )
        return self._one("list_files", {"path": folder}), _whole

    def make_here(self) -> Made:
        self.file(self.text(1, 2))
        self.file(self.text(1, 2))
        return self._one("list_files", {}), _whole

    def make_search(self) -> Made:
        word = self.about["word"] = self.word("nouns")
        folder = self.chance.choice(("", "", f"{self.word('dirs')}/"))
        self.files[f"{folder}{self.name()}"] = f"{self.text(0, 2)}{self.word('people')} has the {word}.\n"
        for _ in range(self.chance.randint(1, 3)):
            self.files[f"{folder}{self.name()}"] = self.text(1, 2).replace(word, "stone")
        return self._one("search_text", {"text": word}), _whole

    def make_lines(self) -> Made:
        return self._counted("lines")

    def make_words(self) -> Made:
        return self._counted("words")

    def make_bytes(self) -> Made:
        return self._counted("bytes")

    def _counted(self, what: str) -> Made:
        file = self.file(self.text(1, 30))
        return self._one("count_text", {"path": file}), lambda seen: {"result": _found(rf"(\d+) {what[:-1]}", seen[-1])}

    def make_occurs(self) -> Made:
        word = self.about["word"] = self.word("nouns")
        file = self.file("".join(self.sentence() + self.chance.choice(("\n", f" {word}\n")) for _ in range(6)))
        arguments = {"path": file, "text": word}
        return self._one("count_text", arguments), lambda seen: {"result": _found(r"occurs (\d+)", seen[-1])}

    def make_time(self) -> Made:
        city = self.about["city"] = self.word("cities")
        return self._one("current_time", {"timezone": city}), lambda seen: {"result": _found(r"(\d+:\d+)", seen[-1])}

    def make_now(self) -> Made:
        return self._one("current_time", {}), lambda seen: {"result": seen[-1].partition(",")[0]}

    def make_write(self) -> Made:
        new, text = self.name(), self.word("texts")
        self.about |= {"new": new, "text": self.chance.choice((f'"{text}"', f"'{text}'", text))}
        return self._one("write_file", {"path": new, "content": text}), _nothing

    def make_edit(self) -> Made:
        file, key, old, new = self._edited()
        self.about["old"] = old
        line = next(line for line in self.files[file].splitlines() if key in line)
        return [
            (f"I read {file}.", Call("read_file", {"path": file})),
            ("", _edit_call(file, line if "{" not in line else old, old, new)),
        ], _nothing

    def make_edit_read(self) -> Made:
        file, key, old, new = self._edited()
        line = next(line for line in self.files[file].splitlines() if key in line)
        return [
            (f"I read {file}.", Call("read_file", {"path": file})),
            ("", _edit_call(file, line if "{" not in line else f'"{key}": {json.dumps(_typed_value(old))}', old, new)),
        ], _nothing

    def _edited(self) -> tuple[str, str, str, str]:
        file, key, old = self.settings()
        while len(self.files[file].split(old)) != 2 or old in key:  # what is replaced must be there once
            self.files.clear()
            file, key, old = self.settings()
        new = old
        while new == old or new in self.files[file]:
            new = str(self.valued(key))
        self.about["value"] = new
        return file, key, old, new

    def make_rename(self) -> Made:
        return self._command("mv", self.file(self.text(1, 2)), self._new())

    def make_copy(self) -> Made:
        return self._command("cp", self.file(self.text(1, 2)), self._new())

    def make_delete(self) -> Made:
        return self._command("rm", self.file(self.text(1, 2)))

    def make_mkdir(self) -> Made:
        self.about["dir"] = folder = self.word("dirs")
        return self._command("mkdir", folder)

    def make_move(self) -> Made:
        self.about["dir"] = folder = self.word("dirs")
        file = self.file(self.text(1, 2))
        there = self.chance.random() < 0.5
        if there:
            self.files[f"{folder}/{self.name()}"] = self.text(1, 1)
            return self._command("mv", file, f"{folder}/")
        return self._one("run_command", {"command": f"mkdir -p {folder} && mv {file} {folder}/"}), _nothing

    def _new(self) -> str:
        self.about["new"] = new = self.name()
        return new

    def _command(self, *words: str) -> Made:
        return self._one("run_command", {"command": " ".join(words)}), _nothing

    def make_run(self) -> Made:
        said = f"{self.word('nouns')} {self.chance.randint(10, 999)}"
        if self.chance.random() < 0.7:
            script, command = self.name("py"), "python3 {}"
            a, b = self.chance.randint(2, 99), self.chance.randint(2, 99)
            self.files[script] = self.chance.choice(
                (f'print("{said}")\n', f"print({a} * {b})\n", f"x = {a}\nprint('sum', x + {b})\n")
            )
        else:
            script, command = self.name("sh"), "sh {}"
            self.files[script] = f"#!/bin/sh\necho {said}\n"
        self.about["script"] = script
        return self._one("run_command", {"command": command.format(script)}), _whole

    def make_checksum(self) -> Made:
        call = {"command": f"sha256sum {self.file(self.text())}"}
        return self._one("run_command", call), lambda seen: {"result": seen[-1].split()[0]}

    def make_largest(self) -> Made:
        for size in self.chance.sample(range(1, 12), k=3):
            self.file(self.text(size, size))
        return self._one("run_command", {"command": "ls -S | head -1"}), _whole

    def make_percent(self) -> Made:
        return self._calculated("{n}% * {m}", n=str(self.chance.randint(1, 99)))

    def make_times(self) -> Made:
        return self._calculated("{n} * {m}")

    def make_plus(self) -> Made:
        return self._calculated("{n} + {m}")

    def make_minus(self) -> Made:
        return self._calculated("{n} - {m}")

    def make_divide(self) -> Made:
        parts = self.chance.randint(2, 60)
        return self._calculated("{n} / {m}", n=str(parts * self.chance.randint(2, 90)), m=str(parts))

    def make_part(self) -> Made:
        names = ("part", "part_de", "part_fr", "part_es", "m")
        return self._calculated("{n} / {m}", **dict(zip(names, self.word("parts"), strict=True)))

    def make_bill(self) -> Made:
        return self._calculated("{n} * {m} + {k}", word=self.word("nouns"))

    def make_share(self) -> Made:
        return self._calculated("({m} + {k}) / {n}", n=str(self.chance.randint(2, 12)))

    def make_root(self) -> Made:
        return self._calculated("sqrt({n})")

    def _calculated(self, form: str, **given: str) -> Made:
        self.about |= {"n": self.number(), "m": self.number(), "k": self.number(), **given}
        return self._one("calculate", {"expression": form.format(**self.about)}), _whole

    def make_convert(self) -> Made:
        unit, to = self.word("units")
        self.about |= {"n": self.number(), "unit": unit, "to": to}
        call = {"value": self.about["n"], "from_unit": unit, "to_unit": to}
        return self._one("convert_units", call), _whole

    def make_column_sum(self) -> Made:
        return self._table("sum")

    def make_column_mean(self) -> Made:
        return self._table("mean")

    def make_column_max(self) -> Made:
        return self._table("max")

    def make_rows(self) -> Made:
        return self._table("count")

    def _table(self, what: str) -> Made:
        column, key = self.word("columns"), self.chance.choice(("name", "day", "who", "place"))
        rows = [(self.word("people"), str(self.chance.randint(1, 400))) for _ in range(self.chance.randint(4, 9))]
        file = self.file(f"{key},{column}\n" + "".join(f"{a},{b}\n" for a, b in rows), "csv")
        self.about |= {"column": key if what == "count" else column, "value": rows[0][0]}
        read = f"rows = list(csv.DictReader(open('{file}')))"
        told = {
            "sum": f"sum(float(r['{column}']) for r in rows)",
            "mean": f"round(sum(float(r['{column}']) for r in rows) / len(rows), 2)",
            "max": f"max(float(r['{column}']) for r in rows)",
            "count": f"sum(r['{key}'] == '{rows[0][0]}' for r in rows)",
        }[what]
        return self._one("run_python", {"code": f"import csv\n{read}\nprint({told})"}), _whole

    def make_field(self) -> Made:
        people = self.chance.sample(self.words("people"), k=3)
        key = self.about["key"] = self.chance.choice(("email", "city", "phone"))
        values = {one: f"{one.lower()}@example.org" if key == "email" else str(self.word("cities")) for one in people}
        file = self.file(json.dumps([{"name": one, key: values[one]} for one in people], indent=1), "json")
        name = self.about["name"] = people[self.chance.randrange(3)]
        return self._one("read_file", {"path": file}), lambda _: {"result": values[name]}

    def make_git_last(self) -> Made:
        author, _, _ = self.repository()[-1]
        return self._git("git log -1 --format=%an"), lambda _: {"result": author}

    def make_git_message(self) -> Made:
        self.repository()
        return self._git("git log -1 --format=%s"), _whole

    def make_git_count(self) -> Made:
        self.repository()
        return self._git("git rev-list --count HEAD"), _whole

    def make_git_commit(self) -> Made:
        _, _, file = self.repository()[-1]
        text = self.word("texts")
        self.about |= {"file": file, "text": f'"{text}"'}
        self.setup.append(("sh", "-c", f"echo more >> {file}"))
        return self._git(f'git add {file} && git commit -m "{text}"'), _nothing

    def _git(self, command: str) -> list[tuple[str, Call]]:
        return [("I ask git.", Call("run_command", {"command": command}))]

    def make_unserved(self) -> Made:
        self.about |= {"thing": self.word("things"), "name": self.word("people"), "city": self.word("cities")}
        self.file(self.text(1, 2))
        return [], _nothing

    def make_missing(self) -> Made:
        folder, other = self.chance.sample(self.words("dirs"), k=2)
        name, text = self.name(), self.text(1, 2)
        self.about |= {"file": name, "dir": folder, "found": f"{other}/{name}"}
        self.files |= {f"{other}/{name}": text, f"{folder}/{self.name()}": self.text(1, 1)}
        return [
            (f"I read {folder}/{name}.", Call("read_file", {"path": f"{folder}/{name}"})),
            ("", Call("list_files", {})),
            (f"I read {other}/{name}.", Call("read_file", {"path": f"{other}/{name}"})),
        ], _whole

    def _one(self, name: str, arguments: Mapping[str, Any]) -> list[tuple[str, Call]]:
        return [("", Call(name, arguments))]


_ALIKE = {
    **worlds.ALIKE,
    **dict.fromkeys(("percent", "times", "plus", "minus", "divide", "part", "bill", "share", "root"), "calculate"),
    **dict.fromkeys(("column_sum", "column_mean", "column_max", "rows"), "code"),
    "field": "value",
    "edit_read": "edit",
}
"""Kinds that are answered, and reasoned about, as others are."""
_ALONE = worlds.ALONE | {"here", "largest", "missing", "list", "git_last", "git_message", "git_count", "git_commit"}
"""Kinds whose workspaces have nothing else in them."""


def _edit_call(file: str, line: str, old: str, new: str) -> Call:
    """The call that changes a value within what stands round it."""
    return Call("edit_file", {"path": file, "old": line, "new": line.replace(old, new)})


def _typed_value(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else text


def _whole(seen: Sequence[str]) -> Mapping[str, str]:
    return {"result": seen[-1].strip()}


def _nothing(_: Sequence[str]) -> Mapping[str, str]:
    return {}


def joined(examples: Iterable[Example]) -> list[Example]:
    """The examples, those that go on where one before them ended as one: what both read is computed once."""
    found: list[Example] = []
    latest: dict[str, int] = {}
    for one in examples:
        at = latest.get(one.role)
        if at is not None and one.prompt[: found[at].learned[-1][1]] == (*found[at].prompt, *found[at].reply):
            found[at] = replace(one, earlier=found[at].learned)
        else:
            latest[one.role] = len(found)
            found.append(one)
    return found


# -- playing


class _Gold:
    """A model that serves a task as it should be served, and keeps what it was asked; it reads as a local one does."""

    def __init__(self, local: LocalModel, task: Task) -> None:
        self.traits = replace(local.traits, small=False, trained=True, name="gold")
        self._local, self._task = local, task
        self._made = 0
        self.examples: list[Example] = []
        self.seen: list[str] = []
        """What the calls have returned; the shell's events tell it."""

    def size(self, request: Request) -> PromptSize:
        return self._local.size(request)

    def count(self, text: str) -> int:
        return self._local.count(text)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        while len(self.seen) < self._made:  # noqa: ASYNC110 - whoever reads the events is a little behind
            await asyncio.sleep(0)
        text, call = self._said(request)
        self._made += call is not None and call.name != TOOL_REGISTER
        said = text if call else Quoting(request).shortened(text)
        self.examples.append(Example(request.role, *self._local.exchange(request, said, call)))
        if text:
            yield Delta(text)
        yield Reply(text, () if call is None else (call,), Usage(1, 1))

    async def aclose(self) -> None:
        """The model that it reads as is somebody else's."""

    def _said(self, request: Request) -> tuple[str, Call | None]:
        steps, at = self._task.steps, len(self.seen)
        if request.role == "planner":
            why, follows = (steps[at].rationale, "caller") if at < len(steps) else ("", "conclusion")
            return f"{why} Next: {follows}.".strip(), None
        if at == len(steps) or request.role == "summarizer":
            return self._task.answer(self.seen), None
        why, call = steps[at].rationale, steps[at].call
        if all(document.name != call.name for document in request.callable_now):
            why, call = f"I register {call.name}.", Call(TOOL_REGISTER, {"tool_name": call.name})
        return "" if request.role == "caller" else why, call


_PLAIN = Options(mode="single")


class _Allowing(NonInteractive):
    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("once")


async def play(
    task: Task,
    local: LocalModel,
    options: Options = _PLAIN,
    *,
    tools: Sequence[Tool | str] = ("?*",),
    past: Callable[[Path, Path], str | None] = lambda home, workspace: None,
) -> list[Example]:
    """What a model has to say so that the shell serves the task, with what the shell asks it; empty where it fails.

    `past` puts the session that the task goes on with into a home, for a workspace, and gives its id.
    """
    gold = _Gold(local, task)
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "project"
        workspace.mkdir()
        for name, text in task.files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text, encoding="utf-8")
        for program in task.setup:
            await asyncio.to_thread(subprocess.run, program, cwd=workspace, check=True, capture_output=True)
        here = replace(options, workspace=workspace, resume=past(home, workspace))
        async with Agent(gold, tools=tools, home=home, user=_Allowing(), options=here) as agent:
            with suppress(EcoshellError):
                async for event in agent.stream(task.request, task.attachments):
                    if isinstance(event, CallFinished):
                        gold.seen.append(event.observation)
            served = len(gold.seen) == len(task.steps) and agent.outcome.answer == task.answer(gold.seen)
    return gold.examples if served else []


def examples(
    local: LocalModel,
    count: int,
    seed: int,
    split: Split,
    ways: Sequence[Options],
    keep: Path | None = None,
) -> list[Example]:
    """Those of so many tasks, each played with each of these options; kept in a file, as `played` does.

    Raises UsageError.
    """
    tasks = generate(count, seed, split)
    plays = (
        (f"{how.mode} {how.registration} {task.digest}", partial(play, task, local, how))
        for task in tasks
        for how in ways
    )
    return [one for _, said in played(plays, keep) for one in said]


def played(
    plays: Iterable[tuple[str, Callable[[], Coroutine[Any, Any, list[Example]]]]], keep: Path | None = None
) -> list[tuple[str, list[Example]]]:
    """The examples of each play, after its key; kept in a file, a line for each, so that each is played once.

    Raises UsageError, which names the line, for a file that is broken.
    """
    there, wanted = _kept(keep) if keep else {}, list[str]()
    if keep:
        keep.parent.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        with keep.open("a", encoding="utf-8") if keep else nullcontext() as file:
            for key, made in plays:
                wanted.append(key)
                if key not in there:
                    there[key] = await made()
                    said = [[one.role, one.prompt, one.reply] for one in there[key]]
                    if file:
                        print(json.dumps([key, said], separators=(",", ":")), file=file, flush=True)

    asyncio.run(run())
    return [(key, there[key]) for key in wanted]


def _kept(file: Path) -> dict[str, list[Example]]:
    """What a file of played tasks holds; a last line without an end is one that a killed process left, and goes."""
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        file.write_text(text, encoding="utf-8")
    kept: dict[str, list[Example]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            key, said = json.loads(line)
            kept[str(key)] = [Example(str(role), _tokens(prompt), _tokens(reply)) for role, prompt, reply in said]
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{file}, line {number} is no played task: {error}.", fix="Remove the line, or the file."
            ) from error
    return kept


def _tokens(value: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, value))
