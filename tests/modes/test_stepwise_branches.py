"""The embedded model's parallel plan: what of a question it does, in which order, and what it tells of the rest."""

from pathlib import Path

import pytest

from ecoshell.agent.arguments import direct_call
from ecoshell.agent.model_set import DraftTask, FillTask, View
from ecoshell.catalog import GROW
from ecoshell.catalog.search import Ranker
from ecoshell.errors import ModelError
from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation, Usage
from ecoshell.models import Reply, Scores, Traits
from ecoshell.modes.stepwise import Stepwise
from ecoshell.modes.stepwise.looking import MOST_CHARACTERS
from ecoshell.planning.catp.plan import TASK, GraphPlan
from ecoshell.planning.catp.tpl import parse
from ecoshell.strategies import Path as Trajectory
from ecoshell.strategies import Step, Thought
from ecoshell.tools import LASTING
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

TOOLS = {
    "count": "count_text", "read": "read_file", "list": "list_files", "calculate": "calculate", "time": "current_time",
    "multiply": "calculate", "add": "calculate", "how many": "count_text", "double": "calculate",
}  # fmt: skip


class StandIn:
    """A model that finds a request likely after the tool its words name here, and else after `chat`."""

    traits = Traits("stand-in", None, None, None, native_tools=False, local=True, small=True)

    async def score(self, request, emit, *, role=""):
        asked = request.targets[0].lower()
        likely = next((tool for word, tool in TOOLS.items() if word in asked), "chat").replace("_", " ")
        return Scores(tuple(-5.0 if one == f"{likely}:" else -40.0 for one in request.contexts), Usage())

    async def ask(self, request, emit, *, role=""):
        return Reply("I talk.")


class Embedded(StandIn):
    """The embedded model, asked directly."""

    def __init__(self, model):
        self._model = model

    async def score(self, request, emit, *, role=""):
        return await self._model.score(request)

    async def ask(self, request, emit, *, role=""):
        return [piece async for piece in self._model.stream(request)][-1]


class Play:
    """One question, in a workspace with three files."""

    def __init__(self, root, question, model=None):
        for name, text in {"a.txt": "one two three four", "b.txt": "red green\nblue", "c.txt": "u v w x y z"}.items():
            (root / name).write_text(text)
        self._tools = {tool.document.name: tool for tool in builtin_tools(Workspace(root))}
        documents = [tool.document for tool in self._tools.values()]
        self._mode = Stepwise(
            model or StandIn(),  # type: ignore[arg-type]
            rank=Ranker(documents).rank,
            document=lambda name: self._tools[name].document,
            guarded=lambda name: bool(self._tools[name].effects & LASTING),
            answer_tokens=60,
        )
        self._path = Trajectory(question)
        self.failures: list[str] = []

    async def planned(self) -> GraphPlan | Thought:
        written = await self._mode.draft(self._view(), DraftTask(), self._quiet)
        return written if isinstance(written, Thought) else parse(written)

    async def answer(self) -> str:
        """What graph comes to: the plan's nodes run in their order, then the answer or what has failed."""
        plan = await self.planned()
        if isinstance(plan, Thought):
            return plan.call.arguments["answer"]
        steps: dict[str, Step] = {}
        for node in plan.nodes:
            given = tuple(steps[label] for label in node.after if label in steps)
            document = self._tools[node.tool].document
            try:
                task = FillTask(node.label, document, "the plan", given)
                call = direct_call(document, given) or await self._mode.fill(self._view(), task, self._quiet)
            except ModelError as failure:
                self.failures.append(f"{node.label} failed: {failure.message}")
                continue
            steps[node.label] = Step("", call, await self._tools[node.tool].run(call.arguments))
        self._path = self._path.then(*steps.values())
        if self.failures:
            thought = await self._mode.draft(self._view(), DraftTask(unfinished=tuple(self.failures)), self._quiet)
        else:
            thought = await self._mode.think(self._view(), self._quiet)
        return thought.call.arguments["answer"]

    async def step_by_step(self) -> str:
        """What react comes to."""
        while True:
            call = (await self._mode.think(self._view(), self._quiet)).call
            if call.name == FINISH:
                return call.arguments["answer"]
            done = call.name == TOOL_REGISTER
            seen = Observation("registered") if done else await self._tools[call.name].run(call.arguments)
            self._path = self._path.then(Step("", call, seen))

    @property
    def calls(self) -> list[Call]:
        return [step.call for step in self._path.found]

    def _view(self):
        registered = tuple(self._tools[name].document for name in self._path.registered)
        return View(self._path, self._path.question, (), tuple(self._tools), registered, GROW)

    def _quiet(self, event):
        pass


def structure(plan: GraphPlan) -> list[str]:
    """The tools of a plan, each with the places of what it waits for: `calculate<1,2`."""
    at = {node.label: str(place) for place, node in enumerate(plan.nodes, 1)}
    waits = [",".join(at[label] for label in node.after if label != TASK) for node in plan.nodes]
    return [f"{node.tool}<{waited}" if waited else node.tool for node, waited in zip(plan.nodes, waits, strict=True)]


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
@pytest.mark.parametrize(
    ("question", "work"),
    [
        ("count the words in a.txt, then multiply that by 3", "4 * 3 = 12"),
        ("count the words in a.txt and multiply by 3", "4 * 3 = 12"),
        ("count the words in a.txt and b.txt, then add them", "4 + 3 = 7"),
        ("count the words in a.txt, calculate 2*3 and add the two numbers", "4 + 6 = 10"),
        ("calculate 2*3, add 1 to it and then double that", "2 * 7 = 14"),
        ("count the words in a.txt and c.txt, then double each", "2 * 6 = 12"),
    ],
)
async def test_what_speaks_of_results_is_worked_out_with_them(tmp_path, way, question, work):
    assert work in await getattr(Play(tmp_path, question), way)()


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
async def test_each_part_is_done_however_it_is_joined_and_whatever_stands_in_a_list(tmp_path, way):
    play = Play(
        tmp_path, "count the words in a.txt, b.txt and c.txt, list the files here; calculate 12*7. What time is it?"
    )
    await getattr(play, way)()
    assert [call.name for call in play.calls] == [*["count_text"] * 3, "list_files", "calculate", "current_time"]
    assert [call.arguments.get("path") for call in play.calls[:3]] == ["a.txt", "b.txt", "c.txt"]


async def test_what_speaks_of_a_result_without_a_number_fails_and_the_answer_says_why(tmp_path):
    play = Play(tmp_path, "tell me the time, then multiply that by 3")
    answer = await play.answer()
    assert play.failures == [
        "calculate failed: what “that” is cannot be told: the result of current_time gives no number."
    ]
    assert play.failures[0] in answer
    assert [call.name for call in play.calls] == ["current_time"]


async def test_step_by_step_the_same_is_left_out_and_what_comes_after_it_is_done(tmp_path):
    play = Play(tmp_path, "tell me the time, then multiply that by 3 and count the words in a.txt")
    answer = await play.step_by_step()
    assert "“multiply that by 3”: what “that” is cannot be told" in answer
    assert [call.name for call in play.calls] == ["current_time", "count_text"]


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
async def test_a_part_without_a_tool_and_what_speaks_of_it_are_left_out_by_name(tmp_path, way):
    play = Play(tmp_path, "sing a song, multiply that by 3 and count the words in a.txt")
    answer = await getattr(play, way)()
    assert "“sing a song”: no tool fits it" in answer
    assert "“multiply that by 3”: it speaks of “sing a song”, which is not done" in answer
    assert [call.name for call in play.calls] == ["count_text"]


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
async def test_what_a_call_has_no_use_for_is_told(tmp_path, way):
    answer = await getattr(Play(tmp_path, "read lines 2 to 5 of a.txt"), way)()
    assert "“2”, “5” in “read lines 2 to 5 of a.txt”" in answer


async def test_names_alone_never_become_calls_that_write(tmp_path):
    play = Play(tmp_path, "count the words in a.txt, then b.txt, then c.txt")
    await play.answer()
    assert [call.name for call in play.calls] == ["count_text"] * 3
    assert (tmp_path / "b.txt").read_text() == "red green\nblue"


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
async def test_an_answer_to_all_that_was_asked_leaves_nothing_out(tmp_path, way):
    assert "Not done" not in await getattr(Play(tmp_path, "Hi! Read a.txt and list the files here."), way)()


@pytest.mark.parametrize("way", ["answer", "step_by_step"])
async def test_a_question_without_any_tool_is_talked_about_as_a_whole(tmp_path, way):
    assert await getattr(Play(tmp_path, "Sing a song and then tell a joke."), way)() == "I talk."


async def test_more_parts_than_a_plan_holds_are_left_out_by_name(tmp_path):
    files = [f"f{number}.txt" for number in range(18)]
    for name in files:
        (tmp_path / name).write_text("x")
    play = Play(tmp_path, f"count the words in {', '.join(files[:-1])} and {files[-1]}")
    plan = await play.planned()
    assert isinstance(plan, GraphPlan)
    assert len(plan.nodes) == 16
    answer = await play.answer()
    assert "“count the words in f16.txt”: a plan has 16 nodes at most" in answer
    assert "f17.txt" in answer


async def test_what_stands_behind_the_part_that_is_read_of_a_long_question_is_told(tmp_path):
    answer = await Play(tmp_path, "count the words in a.txt" + " " * MOST_CHARACTERS + "list the files").answer()
    assert f"after its first {MOST_CHARACTERS:,} characters" in answer


@pytest.fixture
def embedded(embedded_model):
    return Embedded(embedded_model)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "count the words in a.txt and b.txt and tell me the current time",
            ["count_text", "count_text", "current_time"],
        ),
        ("how many words are in a.txt and b.txt? What is their sum?", ["count_text", "count_text", "calculate<1,2"]),
        ("calculate 15% of 80, then convert that from km to miles", ["calculate", "convert_units<1"]),
        ('write "one, two" to d.txt and then read it', ["write_file", "read_file<1"]),
    ],
)
async def test_the_embedded_model_plans_the_parts_and_what_they_wait_for(tmp_path, embedded, question, expected):
    plan = await Play(tmp_path, question, embedded).planned()
    assert isinstance(plan, GraphPlan)
    assert structure(plan) == expected


async def test_the_embedded_model_multiplies_what_it_has_counted(tmp_path: Path, embedded):
    answer = await Play(tmp_path, "count the words in a.txt, then multiply that by 3", embedded).answer()
    assert "4 * 3 = 12" in answer
