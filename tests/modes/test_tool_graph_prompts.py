"""Prompts for tool graphs and how replies to them are read."""

import threading
from types import SimpleNamespace

import pytest

from ecoshell.agent.mode import DraftTask, FillTask
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.modes.drafting import ask_for_draft, draft_text, fill_text
from ecoshell.planning.catp.tpl import parse
from ecoshell.strategies import Thought


def tool_schema(*required, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema("count_text", "Counts.", parameters)


PATH = {"type": "string", "description": "File to count."}
COUNT = tool_schema("path", path=PATH)


def test_the_example_in_the_prompt_is_a_plan():
    example = next(line for line in draft_text(DraftTask()).splitlines() if line.startswith("["))
    assert [node.label for node in parse(example).nodes] == [
        "file_size",
        "file_size#2",
        "calculate",
    ]


def test_the_numbered_example_is_the_same_plan():
    prompt = draft_text(DraftTask(), numbered=True)
    example = next(line for line in prompt.splitlines() if line.startswith("[["))
    assert [node.label for node in parse(example).nodes] == [
        "file_size",
        "file_size#2",
        "calculate",
    ]
    assert '"file_size#2"' not in prompt


def test_the_prompt_contains_the_error_or_the_results_of_the_last_plan():
    assert "cannot be run" not in draft_text(DraftTask())
    faulty = draft_text(DraftTask(faulty='["a", ["a"]]', fault="`a` waits for itself."))
    assert '["a", ["a"]]\n`a` waits for itself.' in faulty
    again = draft_text(
        DraftTask(
            "the plan", unfinished=("b failed: gone",), finished=("a", "a#2"), costs="a costs 1"
        )
    )
    assert "the plan\ndone: a, a#2\n- b failed: gone" in again
    assert "a costs 1" in again


async def drafted(reply):
    """The draft that results from this reply to a request for a plan."""

    async def ask(request):
        return reply

    async def make(text):
        return Request((Message("user", text),))

    return await ask_for_draft(
        SimpleNamespace(traits=SimpleNamespace(local=False)), DraftTask(), make, ask
    )


@pytest.mark.parametrize(
    "text", ["Answer: It is 42.", "**Answer:** It is 42.", "answer : It is 42."]
)
async def test_an_answer_instead_of_a_plan_is_a_thought(text):
    assert await drafted(Reply(text)) == Thought("It is 42.")


@pytest.mark.parametrize(
    "answer", ["-12", "$5", "- a\n- b", "**yes**, it is", "`rm x`", ".gitignore", "[1, 2]"]
)
async def test_an_answer_instead_of_a_plan_keeps_its_first_character(answer):
    assert await drafted(Reply(f"Answer: {answer}")) == Thought(answer)
    assert await drafted(Reply(f"**Answer:** {answer}")) == Thought(answer)


async def test_a_call_is_a_thought_and_any_other_reply_is_read_as_a_plan():
    call = Call("count_text", {})
    assert await drafted(Reply("Look.", (call,))) == Thought("Look.", call)
    assert await drafted(Reply(' ["a", ["<task>"]]\n')) == '["a", ["<task>"]]'
    assert await drafted(Reply("I would count.")) == "I would count."


def test_the_prompt_for_a_call_gives_its_node_and_the_other_calls():
    task = FillTask(
        "count_text#2", COUNT, "the plan", use=2, uses=2, calls=(Call("count_text", {"path": "a"}),)
    )
    prompt = fill_text(task)
    assert "It is count_text#2 in the plan the plan." in prompt
    assert "use 2 of 2" in prompt
    assert 'Called already: count_text(path="a").' in prompt
    assert "use 1" not in fill_text(FillTask("count_text", COUNT, "the plan"))


async def test_the_grammar_of_a_plan_is_built_in_another_thread():
    local = SimpleNamespace(traits=SimpleNamespace(name="local", local=True))

    async def ask(request):
        return Reply(request.grammar)

    async def make(text):
        return Request((Message("user", text),), want="text", max_tokens=9)

    threads = []

    def grammar():
        threads.append(threading.current_thread())
        return "root ::= [0-9]"

    plan = await ask_for_draft(local, DraftTask(grammar=grammar), make, ask)
    assert "plan ::= [0-9]" in plan
    assert threads != [threading.main_thread()]
