"""Training tasks, generated from a grammar of requests (`frames.toml`): workspaces, and the calls that serve them."""

import hashlib
import random
import re
from collections import Counter
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace

from ecoshell.messages import (
    Attachment,
    Call,
)
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell_train.kinds import ALIKE, ALONE, APART, MAKERS
from ecoshell_train.tool_kinds import KINDS
from ecoshell_train.world import (
    Split,
    World,
    frames,
    here,
)

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


_MAKERS = {
    **MAKERS,
    **{kind: make for make, _, names in KINDS for kind in names.split()},
}
_ALIKE = {
    **ALIKE,
    **{kind: alike for _, alike, names in KINDS for kind in names.split()},
}
"""Kinds with the answer and the reason of another kind."""
_ALONE = ALONE | {
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
    **dict.fromkeys(MAKERS, 1.2),
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
"""Relative frequencies of kinds, 1 by default; those of the module `kinds` are about half of all tasks."""


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
            plain = not other.setup and not task.setup and not {task.kind, other.kind} & ALONE
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
        apart=(1,) * len(steps) if kind in APART else (),
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
