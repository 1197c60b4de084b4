"""Calls of a tool graph that follow from earlier results, and calls that need a model."""

import pytest

from ecoshell.agent.direct_call import direct_call
from ecoshell.messages import Call, Observation, ToolSchema
from ecoshell.strategies import Step


def tool_schema(*required, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema("tool", "A tool.", parameters)


def result(text, **more):
    return Step("", Call("before"), Observation(text, **more))


STRING = {"type": "string"}


def test_a_tool_without_parameters_needs_no_results():
    assert direct_call(tool_schema(), []) == Call("tool")
    assert direct_call(tool_schema(), [result("a"), result("b")]) == Call("tool")


@pytest.mark.parametrize(
    ("name", "schema", "text", "value"),
    [
        ("text", STRING, "any words\nat all", "any words\nat all"),
        ("html_content", STRING, "<p>", "<p>"),
        ("amount", {"type": "number"}, " 41.5 ", 41.5),
        ("count", {"type": "integer"}, "7", 7),
        ("url", STRING, "https://example.org/a", "https://example.org/a"),
        ("path", STRING, "notes/a.txt\n", "notes/a.txt"),
        ("data", {"type": "object"}, '{"a": 1}', {"a": 1}),
    ],
)
def test_a_result_that_fits_the_parameter_is_passed_on(name, schema, text, value):
    assert direct_call(tool_schema(name, **{name: schema}), [result(text)]) == Call(
        "tool", {name: value}
    )


@pytest.mark.parametrize(
    ("name", "schema", "text"),
    [
        ("query", STRING, "any words"),
        ("amount", {"type": "number"}, "a.txt: 3 lines"),
        ("count", {"type": "integer"}, "7.5"),
        ("url", STRING, "see https://example.org/a"),
        ("path", STRING, "two words"),
        ("data", {"type": "object"}, "{broken"),
        ("data", {"type": "object"}, "[1]"),
        ("data", {"type": "array"}, "[" * 100_000),
    ],
)
def test_a_result_that_does_not_fit_the_parameter_needs_a_model(name, schema, text):
    assert direct_call(tool_schema(name, **{name: schema}), [result(text)]) is None


@pytest.mark.parametrize(
    "text",
    [
        "007",
        "-007",
        "٣",
        "٣.٥",
        "9" * 5_000,
        "1" * 400 + ".5",
        "1e999",
        "NaN",
        "-Infinity",
        "1_000",
        "1,000",
        "",
        "-",
    ],
)
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_text_that_only_resembles_a_number_needs_a_model(kind, text):
    assert direct_call(tool_schema("amount", amount={"type": kind}), [result(text)]) is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "-7", -7),
        ("integer", " 0\n", 0),
        ("integer", "7.0", 7),
        ("integer", "100000000000000000000001.00", 100000000000000000000001),
        ("number", "-0.25", -0.25),
        ("number", "\t12\r\n", 12),
        ("number", "3.0", 3),
    ],
)
def test_a_number_is_passed_with_the_type_of_the_schema(kind, text, value):
    call = direct_call(tool_schema("amount", amount={"type": kind}), [result(text)])
    assert call == Call("tool", {"amount": value})
    assert type(call.arguments["amount"]) is type(value)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": 007}'])
def test_json_with_an_invalid_number_needs_a_model(text):
    assert direct_call(tool_schema("data", data={"type": "object"}), [result(text)]) is None


def test_an_ambiguous_call_needs_a_model():
    text = tool_schema("text", text=STRING)
    assert direct_call(text, []) is None
    assert direct_call(text, [result("a"), result("b")]) is None
    assert direct_call(tool_schema("text", text=STRING, tone=STRING), [result("a")]) is None
    assert direct_call(tool_schema(text=STRING), [result("a")]) is None
    assert direct_call(text, [result("the beginning", truncated=True)]) is None
