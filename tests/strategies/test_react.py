"""The react strategy without I/O, and paths."""

from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation
from ecoshell.strategies import AskModel, CallTool, Outcome, Path, Step, Thought
from ecoshell.strategies.react import react


def play(replies, *, max_steps=24):
    """Send these replies to the strategy; return its requests and its outcome."""
    thinking, requests = react("How many?", max_steps), []
    reply = None
    replies = iter(replies)
    try:
        while True:
            requests.append(thinking.send(reply))
            reply = next(replies)
    except StopIteration as stop:
        return requests, stop.value


def test_a_finish_call_ends_with_its_answer():
    requests, outcome = play([Thought("", Call(FINISH, {"answer": "42"}))])
    assert outcome == Outcome("answered", "42", Path("How many?"))
    assert requests == [AskModel(Path("How many?"))]


def test_text_without_a_call_is_the_answer():
    _, outcome = play([Thought("There are three.")])
    assert (outcome.ending, outcome.answer) == ("answered", "There are three.")


def test_giving_up_keeps_the_reason():
    _, outcome = play([Thought("", Call(FINISH, {"give_up": True, "answer": "no such file"}))])
    assert (outcome.ending, outcome.answer) == ("gave_up", "no such file")


def test_each_call_extends_the_path_by_a_step():
    register = Call(TOOL_REGISTER, {"tool_name": "count_text"})
    count = Call("count_text", {"path": "a.txt"})
    requests, outcome = play(
        [
            Thought("I need a counter.", register),
            (Observation("the schema"),),
            Thought("Count.", count),
            (Observation("3 lines"),),
            Thought("", Call(FINISH, {"answer": "3"})),
        ]
    )
    first = Path("How many?").then(Step("I need a counter.", register, Observation("the schema")))
    assert requests[1] == CallTool(Path("How many?"), (register,))
    assert requests[3] == CallTool(first, (count,))
    assert outcome.path == first.then(Step("Count.", count, Observation("3 lines")))


def test_the_step_limit_ends_the_path_without_an_answer():
    call = Call("list_files", {})
    _, outcome = play(
        [Thought("", call), (Observation("a"),), Thought("", call), (Observation("a"),)],
        max_steps=2,
    )
    assert (outcome.ending, outcome.answer, len(outcome.path.steps)) == ("exhausted", "", 2)


def test_a_path_lists_successful_registrations_once():
    def registration(name: str, ok: bool) -> Step:
        return Step("", Call(TOOL_REGISTER, {"tool_name": name}), Observation("", ok=ok))

    path = Path("q", (registration("a", True), registration("b", False), registration("a", True)))
    assert path.registered == ("a",)


def test_branches_have_separate_registrations():
    trunk = Path("q")
    first = trunk.then(Step("", Call(TOOL_REGISTER, {"tool_name": "a"}), Observation("")))
    second = trunk.then(Step("", Call(TOOL_REGISTER, {"tool_name": "b"}), Observation("")))
    assert (first.registered, second.registered) == (("a",), ("b",))
