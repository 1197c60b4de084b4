"""The mode through the real strategy and the real tools, with a stand-in for the model and with the embedded one."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshell.agent.model_set import View
from ecoshell.catalog import GROW
from ecoshell.catalog.search import Ranker
from ecoshell.errors import ModelBroken, UsageError
from ecoshell.events import Event, Notice, TextArrived
from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Message, Observation, Usage
from ecoshell.models import Reply, Request, ScoreRequest, Scores, Traits
from ecoshell.modes.stepwise import Stepwise
from ecoshell.modes.stepwise.choosing import CHAT
from ecoshell.strategies import AskModel, Backtrack, CallTool, Outcome, Rank, Strategy, Thought, Tried
from ecoshell.strategies import Path as Trajectory
from ecoshell.strategies.dfsdt import dfsdt
from ecoshell.strategies.react import react
from ecoshell.strategies.tot import tot
from ecoshell.tools import LASTING
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace


class StandIn:
    """A model that makes the request likely after one name, and gives fixed replies."""

    traits = Traits("stand-in", None, None, None, native_tools=False, local=True, small=True)

    def __init__(self, likely: str, *replies: Reply) -> None:
        self._likely = likely
        self._replies = list(replies)
        self.asked: list[Request] = []

    async def score(self, request: ScoreRequest, emit: Callable, *, role: str = "") -> Scores:
        likely = f"{self._likely.replace('_', ' ')}:"
        return Scores(tuple(-5.0 if context == likely else -40.0 for context in request.contexts), Usage())

    async def ask(self, request: Request, emit: Callable, *, role: str = "") -> Reply:
        self.asked.append(request)
        return self._replies.pop(0)


class Run:
    """One question in a workspace."""

    def __init__(self, model: object, root: Path) -> None:
        self._tools = {tool.document.name: tool for tool in builtin_tools(Workspace(root))}
        documents = [tool.document for tool in self._tools.values()]
        self.mode = Stepwise(
            model,  # type: ignore[arg-type]
            rank=Ranker(documents).rank,
            document=lambda name: self._tools[name].document,
            guarded=lambda name: bool(self._tools[name].effects & LASTING),
            answer_tokens=60,
        )
        self.calls: list[Call] = []
        self.refuse = ""
        self._searching = False

    def view(self, path, history: tuple[Message, ...] = (), tried: tuple[Tried, ...] = ()) -> View:
        registered = tuple(self._tools[name].document for name in path.registered)
        return View(
            path, path.question, history, tuple(self._tools), registered, GROW, tried=tried, searching=self._searching
        )

    async def ask(self, question: str, strategy: Strategy = react) -> Outcome:
        thinking, self._searching = strategy(question, 24), strategy is not react
        sent = None
        try:
            while True:
                sent = await self._fulfil(thinking.send(sent))
        except StopIteration as end:
            return end.value

    async def _fulfil(self, want):
        match want:
            case AskModel():
                return await self.mode.think(self.view(want.path, tried=want.tried), lambda event: None)
            case Rank():
                return await self.mode.prefer(self.view(want.path), want.one, want.other, lambda event: None)
            case CallTool():
                self.calls += want.calls
                return tuple([await self._act(call) for call in want.calls])
            case Backtrack():
                return None

    async def _act(self, call: Call) -> Observation:
        if call.name == TOOL_REGISTER:
            return Observation("registered")
        if self.refuse:
            return Observation("not approved", ok=False, refused=self.refuse)
        return await self._tools[call.name].run(call.arguments)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("one\ntwo\nthree\n")
    (tmp_path / "notes.txt").write_text("buy milk\n")
    return tmp_path


async def test_the_tool_that_fits_is_registered_called_and_its_result_worded(root):
    run = Run(StandIn("count_text", Reply("README.md has 3 lines.")), root)
    outcome = await run.ask("How many lines has README.md?")
    assert run.calls == [
        Call(TOOL_REGISTER, {"tool_name": "count_text"}),
        Call("count_text", {"path": "README.md"}),
    ]
    assert (outcome.ending, outcome.answer) == ("answered", "README.md has 3 lines.")


async def test_an_answer_that_says_something_else_than_the_result_is_replaced_by_the_result(root):
    run = Run(StandIn("count_text", Reply("README.md has 30 lines.")), root)
    outcome = await run.ask("How many lines has README.md?")
    assert "3 lines" in outcome.answer
    assert "30" not in outcome.answer


async def test_a_long_result_is_quoted_without_asking_the_model(root):
    model = StandIn("read_file")
    outcome = await Run(model, root).ask("Read notes.txt.")
    assert outcome.answer == "buy milk"
    assert model.asked == []


async def test_talk_needs_no_tool(root):
    run = Run(StandIn(CHAT, Reply("Hello there!")), root)
    outcome = await run.ask("Hello")
    assert (outcome.answer, run.calls) == ("Hello there!", [])


class Telling(StandIn):
    """Tells what it says while it says it, as a model does."""

    async def ask(self, request: Request, emit: Callable, *, role: str = "") -> Reply:
        reply = await super().ask(request, emit, role=role)
        for word in re.findall(r"\S+\s*", reply.text):
            emit(TextArrived(word, "answer", role))
        return reply


async def test_a_worked_example_of_the_prompt_is_never_the_answer_nor_shown(root):
    example = "Ice floats because it is less dense than liquid water."
    model, told = Telling(CHAT, Reply(f"Well. {example}"), Reply("The sky is blue.")), []
    run = Run(model, root)
    thought = await run.mode.think(run.view(Trajectory("Why is the sky blue?")), told.append)
    assert thought.call == Call(FINISH, {"answer": "The sky is blue."})
    first, again = ("".join(message.text for message in request.messages) for request in model.asked)
    assert example in first
    assert example not in again
    assert "".join(event.text for event in told) == "Well. The sky is blue."


async def test_talk_is_shown_as_it_is_said(root):
    told = []
    run = Run(Telling(CHAT, Reply("The capital of Italy I know not. Ice")), root)
    await run.mode.think(run.view(Trajectory("Hello")), told.append)
    assert "".join(event.text for event in told) == "The capital of Italy I know not. Ice"


async def test_talk_that_cannot_fit_the_context_is_refused_by_its_length(root):
    model = StandIn(CHAT, Reply("Hello!"))
    model.traits = replace(StandIn.traits, context=100)
    with pytest.raises(UsageError, match="801 characters"):
        await Run(model, root).ask("h" * 801)
    assert model.asked == []


async def test_each_part_of_a_question_gets_its_own_call(root):
    run = Run(StandIn("read_file"), root)
    outcome = await run.ask("Read notes.txt and then read README.md.")
    assert [call.arguments.get("path") for call in run.calls] == [None, "notes.txt", "README.md"]
    assert "buy milk" in outcome.answer
    assert "two" in outcome.answer


async def test_what_the_request_does_not_decide_is_asked_under_a_grammar_of_its_own_words(root):
    model = StandIn("search_text", Reply("", (Call("search_text", {"text": "milk"}),)))
    outcome = await Run(model, root).ask("Find milk in all of it")
    request = model.asked[0]
    offered = request.callable_now[0].parameters["properties"]["text"]["enum"]
    assert "milk" in offered
    assert len(offered) > 1
    assert request.want == "call"
    assert "notes.txt" in outcome.answer


async def test_a_huge_paste_is_searched_for_its_request_in_no_time(root):
    run = Run(StandIn("count_text", Reply("")), root)
    paste = "How many words has notes.txt?\n" + " " * 5_000_000 + "1 and " * 100_000
    started = time.process_time()
    await run.ask(paste)
    assert run.calls[1] == Call("count_text", {"path": "notes.txt"})
    assert time.process_time() - started < 60, "it takes the square of what was pasted"


async def test_a_failed_call_is_tried_once_more_with_the_error_and_then_given_up(root):
    first, second = (Reply("", (Call("calculate", {"expression": text}),)) for text in ("{x}", "{y}"))
    model = StandIn("calculate", first, second)
    run = Run(model, root)
    outcome = await run.ask("Calculate a lot")
    assert "failed" in model.asked[1].messages[-1].text
    assert outcome.ending == "gave_up"
    assert "{y}" in outcome.answer
    assert len(run.calls) == 3


async def test_a_failure_that_leaves_no_other_call_is_told_honestly(root):
    outcome = await Run(StandIn("count_text"), root).ask("How many lines has missing.txt?")
    assert outcome.ending == "gave_up"
    assert "missing.txt" in outcome.answer


async def test_a_refused_call_is_not_repeated(root):
    run = Run(StandIn("count_text"), root)
    run.refuse = "unapproved"
    outcome = await run.ask("How many lines has README.md?")
    assert (outcome.ending, len(run.calls)) == ("gave_up", 2)


async def test_arguments_the_model_cannot_give_are_an_error_that_says_what_to_do(root):
    run = Run(StandIn("calculate", Reply("", fault="cut")), root)
    with pytest.raises(ModelBroken, match="larger model"):
        await run.ask("Calculate a lot")


async def test_concluding_quotes_what_was_found_out(root):
    run = Run(StandIn("read_file"), root)
    outcome = await run.ask("Read notes.txt.")
    assert await run.mode.conclude(run.view(outcome.path), lambda event: None) == "buy milk"


async def test_concluding_with_nothing_found_out_says_so(root):
    run = Run(StandIn(CHAT, Reply("Hi")), root)
    outcome = await run.ask("Hello")
    assert "Nothing" in await run.mode.conclude(run.view(outcome.path), lambda event: None)


def registering(name: str) -> Thought:
    return Thought("", Call(TOOL_REGISTER, {"tool_name": name}))


async def test_a_step_that_was_tried_is_not_proposed_again(root):
    run = Run(StandIn("count_text"), root)
    tried = (Tried(Call(TOOL_REGISTER, {"tool_name": "count_text"}), "given up: nothing"),)
    view = run.view(Trajectory("How many lines has README.md?"), tried=tried)
    thought = await run.mode.think(view, lambda event: None)
    assert thought.call is not None
    assert (thought.call.name, thought.call.subject == "count_text") == (TOOL_REGISTER, False)


async def test_where_no_other_tool_fits_it_gives_up_with_what_was_tried_before(root):
    run = Run(StandIn("calculate"), root)
    tried = (Tried(Call(TOOL_REGISTER, {"tool_name": "calculate"}), "given up: too hard"),)
    thought = await run.mode.think(run.view(Trajectory("Xyzzy?"), tried=tried), lambda event: None)
    assert thought.call == Call(FINISH, {"answer": "No other tool fits. given up: too hard", "give_up": True})


@pytest.mark.parametrize(("one", "other"), [("calculate", "read_file"), ("read_file", "calculate")])
async def test_of_two_steps_the_one_with_the_likelier_tool_is_preferred_in_either_order(root, one, other):
    run = Run(StandIn("calculate"), root)
    pair = (registering(one), registering(other))
    better = await run.mode.prefer(run.view(Trajectory("Xyzzy?")), *pair, lambda event: None)
    assert better == registering("calculate")


async def test_steps_that_do_not_name_two_tools_are_not_compared(root):
    run, view = Run(StandIn("calculate"), root), Run(StandIn(""), root).view(Trajectory("Xyzzy?"))
    same = Thought("", Call("calculate", {"expression": "1"}))
    for other in (registering("calculate"), Thought("42"), Thought("", Call(FINISH, {"answer": "42"}))):
        assert await run.mode.prefer(view, same, other, lambda event: None) is None


async def test_a_search_tries_another_tool_where_the_first_one_fails(root):
    run = Run(StandIn("count_text"), root)
    outcome = await run.ask("Read the text file missing.txt", dfsdt)
    assert list(dict.fromkeys(call.subject for call in run.calls))[:2] == ["count_text", "read_file"]
    assert outcome.ending == "gave_up"


class Ungated:
    """The embedded model, asked directly."""

    def __init__(self, model) -> None:
        self._model = model
        self.traits = model.traits

    async def score(self, request: ScoreRequest, emit: Callable, *, role: str = "") -> Scores:
        return await self._model.score(request)

    async def ask(self, request: Request, emit: Callable, *, role: str = "") -> Reply:
        pieces = [piece async for piece in self._model.stream(request)]
        return pieces[-1]


@pytest.fixture
def embedded(embedded_model):
    return Ungated(embedded_model)


@pytest.mark.parametrize(
    ("question", "tool", "fact"),
    [
        ("What is 17 * 23?", "calculate", "391"),
        ("How many lines has README.md?", "count_text", "3 lines"),
        ("Convert 5 miles to km.", "convert_units", "8.04672"),
    ],
)
async def test_the_embedded_model_answers_by_registering_and_calling_the_right_tool(
    embedded, root, question, tool, fact
):
    run = Run(embedded, root)
    outcome = await run.ask(question)
    assert run.calls[0] == Call(TOOL_REGISTER, {"tool_name": tool})
    assert run.calls[1].name == tool
    assert fact in outcome.answer


async def test_what_goes_along_with_a_question_is_read_when_no_tool_is_chosen_and_only_as_much_as_fits(root):
    model = StandIn("chat", Reply("A poem."), Reply("Long."))
    run = Run(model, root)
    told: list[Event] = []
    along = replace(run.view(Trajectory("Who wrote this?")), along="poem.txt:\n```\nRoses are red.\n```")
    assert (await run.mode.think(along, told.append)).call.arguments == {"answer": "A poem."}
    assert model.asked[-1].messages[-1].text == "Who wrote this?\n\npoem.txt:\n```\nRoses are red.\n```"
    assert told == []
    earlier = (Message("user", "q" * 100_000), Message("assistant", "a"))
    await run.mode.think(replace(along, along="x" * 100_000, history=earlier), told.append)
    assert sum(len(message.text) for message in model.asked[-1].messages) < 8_000
    assert isinstance(told[0], Notice)
    assert "only the beginning" in told[0].text


async def test_what_goes_along_is_talked_about_unless_the_question_asks_for_a_tool_by_its_words(root):
    likely_to_write = StandIn("write_file", Reply("It is milk."), Reply("It is about 3 cows."))
    run = Run(likely_to_write, root)
    view = replace(run.view(Trajectory("summarize @notes.txt")), along="notes.txt:\n```\nbuy milk\n```")
    assert (await run.mode.think(view, lambda event: None)).call == Call(FINISH, {"answer": "It is milk."})
    lines = "What was read says:\n\n```\nnotes.txt:\nbuy milk\n```"
    assert (await run.mode.think(view, lambda event: None)).call == Call(FINISH, {"answer": lines})
    counting = replace(view, path=Trajectory("how many words has @notes.txt?"))
    thought = await Run(StandIn("count_text"), root).mode.think(counting, lambda event: None)
    assert thought.call == Call(TOOL_REGISTER, {"tool_name": "count_text"})


async def test_what_a_larger_model_was_told_of_the_workspace_is_kept_from_a_small_one(root):
    facts, model = "Where this runs: here.", StandIn(CHAT, Reply("Hello!"), Reply("Hello!"))
    run = Run(model, root)
    for before, contexts in (("Hello", ()), (f"{facts}\n\nHello", (facts,))):
        history = (Message("user", before), Message("assistant", "Hi."))
        view = replace(run.view(Trajectory("Nice to meet you"), history), contexts=contexts)
        await run.mode.think(view, lambda event: None)
    assert model.asked[0].messages == model.asked[1].messages


@pytest.mark.parametrize(
    ("strategy", "question", "tool", "fact"),
    [(tot, "What is 17 * 23?", "calculate", "391"), (dfsdt, "How many lines has README.md?", "count_text", "3 lines")],
)
async def test_the_embedded_model_answers_in_a_search_too(root, embedded, strategy, question, tool, fact):
    run = Run(embedded, root)
    outcome = await run.ask(question, strategy)
    assert outcome.ending == "answered"
    assert fact in outcome.answer
    assert tool in [call.name for call in run.calls]
