"""Small models as the caller and the summarizer beside a planner that is none, with stand-ins for them."""

from dataclasses import replace

import pytest

from ecoshell.agent.model_set import FillTask, View
from ecoshell.catalog import GROW
from ecoshell.errors import CallBroken, ModelBroken
from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation, ToolDocument, Usage
from ecoshell.models import PromptSize, Reply, Scores, Traits
from ecoshell.modes.umi import SmallCaller, SmallRoles, SmallSummarizer, Trio, Umi
from ecoshell.strategies import Path, Step, Thought


def _tool(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDocument(name, f"Does {name}.", schema)


COUNT = _tool("count_text", path={"type": "string", "description": "File to count"})
WORK_OUT = _tool("calculate", expression={"type": "string"})
TOOLS = {tool.name: tool for tool in (COUNT, WORK_OUT)}


class StandIn:
    """A model that gives fixed replies, and finds a request likely after one name."""

    can_score = True

    def __init__(self, *replies, small=False, likely=""):
        self.traits = Traits("stand-in", None, 2_000, None, native_tools=not small, local=True, small=small)
        self.asked = []
        self.scored = []
        self._replies = [Reply(one) if isinstance(one, str) else one for one in replies]
        self._likely = f"{likely.replace('_', ' ')}:"

    def size(self, request):
        count = sum(len(message.text) for message in request.messages) // 4
        return PromptSize(count, count, exact=True)

    async def ask(self, request, emit, *, role, aside=None):
        self.asked.append((role, request))
        return self._replies.pop(0)

    async def score(self, request, emit, *, role):
        self.scored.append((role, request))
        return Scores(tuple(-5.0 if one == self._likely else -40.0 for one in request.contexts), Usage())


def quiet(event):
    pass


def view(question="What is it?", *steps, registered=(), known=tuple(TOOLS), **more):
    return View(Path(question, steps), question, (), known, registered, GROW, **more)


def play(thought, *replies, likely="", answers=()):
    """The mode, the small caller and the small summarizer beside a planner that says this."""
    caller, summarizer = StandIn(*replies, small=True, likely=likely), StandIn(*answers, small=True)
    small = SmallRoles(
        SmallCaller(caller, rank=lambda said: (), document=TOOLS.__getitem__),  # type: ignore[arg-type]
        SmallSummarizer(summarizer, answer_tokens=50),  # type: ignore[arg-type]
    )
    trio = Trio(StandIn(thought), caller, summarizer)  # type: ignore[arg-type]
    return Umi(trio, max_tokens=100, answer_tokens=50, small=small), caller, summarizer


async def test_a_tool_that_the_planner_names_is_registered_without_asking_anybody():
    mode, caller, _ = play("count_text would count them. Next: caller.")
    assert await mode.think(view(), quiet) == Thought(
        "count_text would count them.", Call(TOOL_REGISTER, {"tool_name": "count_text"})
    )
    assert (caller.asked, caller.scored) == ([], [])


async def test_a_call_that_the_thought_leaves_no_choice_about_is_made_without_asking():
    mode, caller, _ = play("Count notes.txt with count_text. Next: caller.")
    thought = await mode.think(view(registered=(COUNT,)), quiet)
    assert (thought.call, thought.by) == (Call("count_text", {"path": "notes.txt"}), "caller")
    assert caller.asked == []


async def test_the_model_fills_in_what_is_open_shown_the_thought_alone_and_held_to_one_tool():
    made = Reply("", (Call("calculate", {"expression": "3 * 4"}),))
    mode, caller, _ = play("calculate 3 * 4, or else 5 * 6. Next: caller.", made)
    thought = await mode.think(view("A question " * 40, registered=(COUNT, WORK_OUT)), quiet)
    assert thought.call == made.call
    ((role, request),) = caller.asked
    assert (role, request.want) == ("caller", "call")
    assert [document.name for document in request.callable_now] == ["calculate"]
    assert request.callable_now[0].parameters["properties"]["expression"]["enum"] == ["3 * 4", "5 * 6"]
    assert not any("A question" in message.text for message in request.messages)


async def test_a_tool_that_is_not_named_is_the_one_whose_name_makes_the_thought_likely():
    mode, caller, _ = play("Find the product. Next: caller.", likely="calculate")
    thought = await mode.think(view(), quiet)
    assert thought.call == Call(TOOL_REGISTER, {"tool_name": "calculate"})
    assert [role for role, _ in caller.scored] == ["caller"]


async def test_a_failed_call_is_shown_to_the_caller_that_makes_it_again():
    failed = Step("", Call("calculate", {"expression": "3 *"}), Observation("3 * is cut short", ok=False))
    made = Reply("", (Call("calculate", {"expression": "5 * 6"}),))
    mode, caller, _ = play("calculate 3 * 4, or else 5 * 6. Next: caller.", made)
    await mode.think(view("q", failed, registered=(WORK_OUT,)), quiet)
    assert "3 * is cut short" in caller.asked[0][1].messages[-1].text


async def test_a_caller_that_twice_makes_no_call_ends_the_turn_with_an_error():
    broken = Reply("", fault="it was cut")
    mode, caller, _ = play("calculate 3 * 4, or else 5 * 6. Next: caller.", broken, broken)
    with pytest.raises(ModelBroken, match="twice made a call that cannot be used: it was cut"):
        await mode.think(view(registered=(WORK_OUT,)), quiet)
    assert len(caller.asked) == 2


async def test_what_is_forbidden_is_never_called():
    mode, _, _ = play("Count notes.txt with count_text. Next: caller.", likely="calculate")
    forbidden = frozenset({"count_text"})
    thought = await mode.think(view(registered=(COUNT,), forbidden=forbidden), quiet)
    assert thought.call == Call(TOOL_REGISTER, {"tool_name": "calculate"})


async def test_the_summarizer_words_one_result_and_quotes_what_it_cannot_be_trusted_with():
    counted = Step("", Call("count_text", {"path": "a"}), Observation("a has 12 lines"))
    mode, _, summarizer = play("Enough. Next: conclusion.", answers=["a has 12 lines."])
    assert (await mode.think(view("q", counted), quiet)).call == Call(FINISH, {"answer": "a has 12 lines."})
    assert [role for role, _ in summarizer.asked] == ["summarizer"]
    mode, _, _ = play("Enough. Next: conclusion.", answers=["a has 13 lines."])
    assert (await mode.think(view("q", counted), quiet)).call == Call(FINISH, {"answer": "a has 12 lines"})


async def test_without_a_result_the_summarizer_talks_and_reads_no_tools():
    mode, _, summarizer = play("A greeting. Next: conclusion.", answers=["Hello."])
    thought = await mode.think(view("Hello there"), quiet)
    assert thought == Thought("A greeting.", Call(FINISH, {"answer": "Hello."}))
    ((_, request),) = summarizer.asked
    assert (request.tools, request.messages[-1].text) == ((), "Hello there")


async def test_for_a_small_summarizer_nothing_is_set_aside_and_at_a_limit_it_quotes():
    counted = Step("", Call("count_text", {"path": "a"}), Observation("a has 12 lines"))
    mode, _, summarizer = play("Enough. Next: conclusion.")
    await mode.set_aside(view("q", counted))
    assert mode.aside is None
    assert await mode.conclude(view("q", counted), quiet) == "a has 12 lines"
    assert await mode.conclude(view("q"), quiet) == "Nothing was found out before the limit."
    assert summarizer.asked == []


def test_what_is_foreseen_names_the_model_and_the_role_of_each_call():
    mode, caller, summarizer = play("…")
    foreseen = mode.foresee(view())
    assert [call.role for call in foreseen.steps] == ["planner", "caller", "caller"]
    assert foreseen.steps[1].model is caller
    assert [call.role for call in foreseen.ending] == ["planner", "summarizer"]
    assert foreseen.ending[1].model is summarizer
    assert foreseen.conclusion is None


async def test_a_node_of_a_plan_is_filled_in_from_the_part_of_the_question_that_is_its_own():
    mode, caller, _ = play("")
    asked = view("What is 3 * 4 and what is 5 * 6?", registered=(WORK_OUT,))
    task = FillTask("calculate#2", WORK_OUT, "the plan", use=2, uses=2)
    assert await mode.fill(asked, task, quiet) == Call("calculate", {"expression": "5 * 6"})
    assert caller.asked == []


async def test_a_node_that_speaks_of_a_result_is_filled_in_with_it_or_fails():
    mode, caller, _ = play("")
    asked = view("Count the words in a.txt, then multiply that by 3.", registered=(WORK_OUT,))
    counted = Step("", Call("count_text", {"path": "a.txt"}), Observation("a.txt: 1 line, 4 words, 19 characters"))
    task = FillTask("calculate", WORK_OUT, "the plan", given=(counted,))
    assert await mode.fill(asked, task, quiet) == Call("calculate", {"expression": "4 * 3"})
    with pytest.raises(CallBroken, match="cannot be told"):
        await mode.fill(asked, replace(task, given=(counted, counted)), quiet)
    assert caller.asked == []
