from ecoshell.agent.view import path_messages
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, Call, Observation
from ecoshell.modes.requests import fit
from ecoshell.strategies import Path, Step

REGISTER = Call(TOOL_REGISTER, {"tool_name": "read_file"}, "c1")
READ = Call("read_file", {"path": "a"}, "c2")
LONG = "x" * 1000
PATH = (
    Path("q")
    .then(Step("need it", REGISTER, Observation("schema " + LONG)))
    .then(Step("read", READ, Observation(LONG)))
    .then(Step("again", READ, Observation("y" * 1000)))
)


def characters_within(limit):
    return lambda messages: sum(len(message.text) for message in messages) <= limit


def test_a_longer_path_keeps_the_messages_of_a_shorter_path_as_its_prefix():
    for length in range(len(PATH.steps)):
        shorter = path_messages("opening", Path("q", PATH.steps[:length]))
        assert path_messages("opening", PATH)[: len(shorter)] == shorter


def test_only_as_many_observations_as_necessary_are_cut_oldest_first():
    messages = path_messages("q", PATH)
    fitted = fit(messages, characters_within(2200))
    assert "[cut: 920 characters" in fitted[4].text
    assert fitted[6].text == "y" * 1000


def test_schemas_are_never_cut():
    fitted = fit(path_messages("q", PATH), characters_within(10))
    assert fitted[2].text == "schema " + LONG


def test_messages_that_fit_are_unchanged():
    messages = path_messages("q", PATH)
    assert fit(messages, characters_within(10_000)) is messages


def test_results_of_wrapped_calls_are_cut_as_well():
    call = Call(TOOL_CALL, {"name": "read_file", "arguments": {"path": "a"}}, "c1")
    fitted = fit(
        path_messages("q", Path("q").then(Step("", call, Observation(LONG)))),
        characters_within(200),
    )
    assert "[cut: 920 characters" in fitted[2].text
