from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation
from ecoshell.strategies import AskModel, CallTool, Outcome, Path, Step, Thought
from ecoshell.strategies.react import react


def play(replies, *, max_steps=24):
    """Send these replies to the strategy; give back what it asked for and how it ended."""
    thinking, wants = react("How many?", max_steps), []
    reply = None
    replies = iter(replies)
    try:
        while True:
            wants.append(thinking.send(reply))
            reply = next(replies)
    except StopIteration as stop:
        return wants, stop.value


def test_a_finish_call_ends_with_its_answer():
    wants, outcome = play([Thought("", Call(FINISH, {"answer": "42"}))])
    assert outcome == Outcome("answered", "42", Path("How many?"))
    assert wants == [AskModel(Path("How many?"))]


def test_text_without_a_call_is_the_answer():
    _, outcome = play([Thought("There are three.")])
    assert (outcome.ending, outcome.answer) == ("answered", "There are three.")


def test_giving_up_keeps_the_reason():
    _, outcome = play([Thought("", Call(FINISH, {"give_up": True, "answer": "no such file"}))])
    assert (outcome.ending, outcome.answer) == ("gave_up", "no such file")


def test_each_call_is_made_on_the_path_so_far_and_adds_a_step():
    register = Call(TOOL_REGISTER, {"tool_name": "count_text"})
    count = Call("count_text", {"path": "a.txt"})
    wants, outcome = play(
        [
            Thought("I need a counter.", register),
            (Observation("the document"),),
            Thought("Count.", count),
            (Observation("3 lines"),),
            Thought("", Call(FINISH, {"answer": "3"})),
        ]
    )
    first = Path("How many?").then(Step("I need a counter.", register, Observation("the document")))
    assert wants[1] == CallTool(Path("How many?"), (register,))
    assert wants[3] == CallTool(first, (count,))
    assert outcome.path == first.then(Step("Count.", count, Observation("3 lines")))


def test_the_step_limit_ends_the_path_without_an_answer():
    call = Call("list_files", {})
    _, outcome = play([Thought("", call), (Observation("a"),), Thought("", call), (Observation("a"),)], max_steps=2)
    assert (outcome.ending, outcome.answer, len(outcome.path.steps)) == ("exhausted", "", 2)


def test_a_path_knows_only_registrations_that_worked_each_once():
    def registering(name: str, ok: bool) -> Step:
        return Step("", Call(TOOL_REGISTER, {"tool_name": name}), Observation("", ok=ok))

    path = Path("q", (registering("a", True), registering("b", False), registering("a", True)))
    assert path.registered == ("a",)


def test_branches_do_not_see_each_others_registrations():
    trunk = Path("q")
    left = trunk.then(Step("", Call(TOOL_REGISTER, {"tool_name": "a"}), Observation("")))
    right = trunk.then(Step("", Call(TOOL_REGISTER, {"tool_name": "b"}), Observation("")))
    assert (left.registered, right.registered) == (("a",), ("b",))
