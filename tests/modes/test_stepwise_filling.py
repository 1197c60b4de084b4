"""What results give to requests that speak of them, and that nothing is made up where they give nothing."""

from pathlib import Path

import pytest

from ecoshell.errors import CallBroken
from ecoshell.messages import Call, Observation
from ecoshell.modes.stepwise import arguments
from ecoshell.modes.stepwise.drafting import Part
from ecoshell.modes.stepwise.filling import filling, untaken
from ecoshell.strategies import Step
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

DOCUMENTS = {tool.document.name: tool.document for tool in builtin_tools(Workspace(Path()))}
COUNTED = "a.txt: 1 line, 4 words, 19 characters, 19 bytes"


def result(text, tool="count_text", *, truncated=False, **given):
    return Step("", Call(tool, given), Observation(text, truncated=truncated))


def only_call(tool, text, *before):
    """The call for a part that speaks of these requests and their results."""
    after = tuple(Part(asked, position=at) for at, (asked, _) in enumerate(before))
    part = Part(text, after, len(after))
    made = filling(DOCUMENTS[tool], part, [step for _, step in before], text)
    return arguments.only_call(made.document)


@pytest.mark.parametrize(
    ("asked", "step", "number"),
    [
        ("count the words in a.txt", result(COUNTED), "4"),
        ("how many lines has a.txt?", result(COUNTED), "1"),
        ("calculate 12*7", result("12*7 = 84"), "84"),
        ("calculate 12*1", result("12*1 = 12"), "12"),
        ("calculate 10/3", result("10/3 ≈ 3.33"), "3.33"),
        ("convert 5 miles to km", result("5 miles = 8.04672 km"), "8.04672"),
        ("get the price", result("30\n", "json_query"), "30"),
        ("read price.txt", result("It costs 1,250 dollars.", "read_file"), "1250"),
    ],
)
def test_the_number_a_result_comes_to_is_worked_with(asked, step, number):
    assert only_call("calculate", "multiply that by 3", (asked, step)) == Call(
        "calculate", {"expression": f"{number} * 3"}
    )


def test_the_numbers_of_several_results_are_worked_with_in_their_order():
    before = [("count the words in a.txt", result(COUNTED)), ("count the words in b.txt", result("b.txt: 3 words"))]
    assert only_call("calculate", "add them", *before) == Call("calculate", {"expression": "4 + 3"})
    assert only_call("calculate", "divide the second by the first", *before) == Call(
        "calculate", {"expression": "3 / 4"}
    )


@pytest.mark.parametrize(
    ("text", "steps", "why"),
    [
        ("multiply that by 3", [result("2031-05-06 13:51:18 (UTC+00:00)", "current_time")], "no number"),
        ("multiply that by 3", [result("3 apples and 4 pears", "read_file")], "several numbers"),
        ("multiply that by 3", [result(COUNTED), result(COUNTED)], "it could be 4 or 4"),
        ("multiply that by 3", [result(COUNTED, truncated=True)], "was cut"),
        ("divide the first by the second", [result(COUNTED)], "not so many results"),
    ],
)
def test_where_no_number_can_be_taken_or_several_fit_there_is_no_call(text, steps, why):
    with pytest.raises(CallBroken, match=why):
        only_call("calculate", text, *(("count the words in a.txt", step) for step in steps))


def test_a_result_that_counts_the_same_thing_in_two_ways_is_not_chosen_from():
    with pytest.raises(CallBroken, match="1 line or 4 words"):
        only_call("calculate", "multiply that by 3", ("count the lines and words in a.txt", result(COUNTED)))


def test_a_result_is_converted_with_its_own_unit_unless_the_request_names_one():
    before = ("convert 5 miles to km", result("5 miles = 8.04672 km", "convert_units"))
    quantity = {"value": "8.04672", "from_unit": "km", "to_unit": "feet"}
    assert only_call("convert_units", "convert that to feet", before) == Call("convert_units", quantity)
    before = ("calculate 3 * 4", result("3 * 4 = 12", "calculate"))
    quantity = {"value": "12", "from_unit": "kg", "to_unit": "pounds"}
    assert only_call("convert_units", "convert that from kg to pounds", before) == Call("convert_units", quantity)


def test_the_file_that_a_result_is_about_is_named():
    read = ("read notes.txt", result("buy milk", "read_file", path="notes.txt"))
    assert only_call("count_text", "count its words", read) == Call("count_text", {"path": "notes.txt"})


def test_what_has_no_file_is_passed_on_as_a_text():
    fetched = ("fetch https://a.org", result("A page.", "fetch_url", url="https://a.org"))
    assert only_call("count_text", "count its words", fetched) == Call("count_text", {"text": "A page."})


def test_results_are_written_as_they_are_and_numbers_alone_where_a_number_is_meant():
    listed, counted = ("list the files", result("a\nb", "list_files")), ("count the words in a.txt", result(COUNTED))
    written = {"path": "x.txt", "content": "a\nb"}
    assert only_call("write_file", "write the result to x.txt", listed) == Call("write_file", written)
    written = {"path": "x.txt", "content": "4"}
    assert only_call("write_file", "write that number to x.txt", counted) == Call("write_file", written)


@pytest.mark.parametrize(
    ("tool", "text", "said"),
    [
        ("run_command", "run it", "rm -r ."),
        ("read_file", "read them", "a.txt\nb.txt"),
        ("current_time", "what is that times 7?", "6"),
    ],
)
def test_a_result_is_never_passed_on_to_what_does_not_say_it_takes_one(tool, text, said):
    with pytest.raises(CallBroken, match=f"nothing that {tool} takes"):
        only_call(tool, text, ("read it.sh and list the files", result(said, "list_files")))


@pytest.mark.parametrize(
    ("text", "expression", "holds"),
    [
        ("work out 4 with 3", "4 * 3", True),
        ("work out 4 with 3", "5 * 3", False),
        ("divide the large by the small", "10 / 2", False),
        ("what is three times twelve", "3 * 12", True),
    ],
)
def test_a_sum_with_a_number_that_nobody_has_said_is_not_made(text, expression, holds):
    made = filling(DOCUMENTS["calculate"], Part(text), (), text)
    call = Call("calculate", {"expression": expression})
    if holds:
        assert made.checked(call) is call
    else:
        with pytest.raises(CallBroken, match=r"with (5|10 and with 2)"):
            made.checked(call)


@pytest.mark.parametrize(
    "text", ["round that", "what is a tenth of that?", "take 3 away from it", "double the sum of 3 and it"]
)
def test_a_sum_with_results_that_is_not_understood_is_not_left_to_the_model(text):
    with pytest.raises(CallBroken, match=r"how to work out .* is not clear"):
        only_call("calculate", text, ("count the words in a.txt", result(COUNTED)))


@pytest.mark.parametrize(("expression", "wrong"), [("2 - 2", "with 2"), ("2", "with nothing to work out")])
def test_a_sum_that_the_request_does_not_give_is_not_made(expression, wrong):
    made = filling(DOCUMENTS["calculate"], Part("take away 2"), (), "take away 2")
    with pytest.raises(CallBroken, match=wrong):
        made.checked(Call("calculate", {"expression": expression}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("read a.txt", []),
        ("read lines 2 to 5 of a.txt", ["2", "5"]),
        ("read a.txt with b.txt", ["b.txt"]),
        ("read a.txt along with the current time", ["the current time"]),
        ("read a.txt before you count b.txt", ["you count b.txt"]),
        ("read the lines and text of a.txt", []),
        ("open a.txt, please", []),
        ("the weather in Lima, and the text of a.txt", ["the weather in Lima"]),
    ],
)
def test_what_a_request_asks_for_beside_what_a_call_does_is_known(text, told):
    assert untaken(DOCUMENTS["read_file"], text, Call("read_file", {"path": "a.txt"})) == told


def test_a_text_that_nobody_has_said_is_not_written():
    made = filling(DOCUMENTS["write_file"], Part("b.txt"), (), "b.txt")
    with pytest.raises(CallBroken, match="with This is a file"):
        made.checked(Call("write_file", {"path": "b.txt", "content": "This is a file."}))


def test_a_unit_that_nobody_has_said_is_not_converted_to():
    after = Part("convert 12 miles into kilometers")
    step = result("12 miles = 19.3 kilometers", "convert_units")
    made = filling(DOCUMENTS["convert_units"], Part("convert that", (after,), 1), [step], "")
    call = Call("convert_units", {"value": "19.3", "from_unit": "kilometers", "to_unit": "meters"})
    with pytest.raises(CallBroken, match="with meters"):
        made.checked(call)
