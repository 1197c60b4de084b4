from ecoshell.agent.context import finished_messages, fit, past_messages, path_messages
from ecoshell.events import Answer, CallFinished, CallStarted, Rationale, ToolRegistered, TurnFinished, TurnStarted
from ecoshell.messages import TOOL_REGISTER, Call, Message, Observation, Usage
from ecoshell.strategies.base import Path, Step

REGISTER = Call(TOOL_REGISTER, {"tool_name": "read_file"}, "c1")
READ = Call("read_file", {"path": "a"}, "c2")
LONG = "x" * 1000
PATH = (
    Path("q")
    .then(Step("need it", REGISTER, Observation("document " + LONG)))
    .then(Step("read", READ, Observation(LONG)))
    .then(Step("again", READ, Observation("y" * 1000)))
)


def characters_within(limit):
    return lambda messages: sum(len(message.text) for message in messages) <= limit


def test_messages_of_a_longer_path_begin_with_those_of_the_shorter():
    for length in range(len(PATH.steps)):
        shorter = path_messages("opening", Path("q", PATH.steps[:length]))
        assert path_messages("opening", PATH)[: len(shorter)] == shorter


def test_the_oldest_observation_is_cut_first_and_only_as_many_as_must():
    messages = path_messages("q", PATH)
    fitted = fit(messages, characters_within(2200))
    assert "[cut: 920 characters" in fitted[4].text
    assert fitted[6].text == "y" * 1000


def test_documents_are_never_cut():
    fitted = fit(path_messages("q", PATH), characters_within(10))
    assert fitted[2].text == "document " + LONG


def test_what_fits_is_left_alone():
    messages = path_messages("q", PATH)
    assert fit(messages, characters_within(10_000)) is messages


def turn(*events, status="answered"):
    return [
        TurnStarted(1, "q", "m", "single", "react"),
        *events,
        TurnFinished(1, status, "done", 0, Usage(), 1, (), 0.0),
    ]


def test_a_session_read_from_its_events_shows_the_model_what_it_showed_before():
    events = turn(
        Rationale("need it", "single"),
        ToolRegistered("read_file", 10, True, 1, "agent"),
        Rationale("read", "single"),
        CallStarted("c2", "read_file", {"path": "a"}),
        CallFinished("c2", "read_file", True, "text", False, 0.1),
        Answer("done"),
    )
    again = Path("q").then(Step("need it", Call(TOOL_REGISTER, {"tool_name": "read_file"}, "r1"), Observation("doc")))
    again = again.then(Step("read", READ, Observation("text", seconds=0.1)))
    assert past_messages(events, lambda name: "doc") == finished_messages("q", again, "done")


def test_a_turn_that_was_killed_is_shown_as_interrupted():
    events = turn(Rationale("read", "single"))[:-1]
    assert past_messages(events, lambda name: "") == (Message("user", "q"), Message("assistant", "[interrupted]"))


def test_a_registration_of_a_tool_that_is_gone_is_left_out():
    events = turn(ToolRegistered("gone", 10, True, 1, "agent"), Answer("done"))
    assert past_messages(events, lambda name: "") == (Message("user", "q"), Message("assistant", "done"))
