import asyncio
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ecoshell.errors import ModelBroken
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from ecoshell.models.call_parsing import Head
from ecoshell.models.choosing import Grammar
from ecoshell.models.embedded import embedded_path
from ecoshell.models.formats import FORMATS, GENERIC
from ecoshell.models.grammar import ending_grammar
from ecoshell.models.llama import Vocabulary
from ecoshell.models.local import LocalModel
from ecoshell.models.protocol import call_text

LIVEMCP = Path(__file__).parents[3] / "shared" / "data" / "livemcp" / "tools_flat.jsonl"

ODD_SCHEMAS = {
    "nothing": {},
    "no_parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    "free_object": {"type": "object"},
    "required_unknown": {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["b"],
    },
    "recursive": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
    },
    "reference_to_nowhere": {"type": "object", "properties": {"a": {"$ref": "#/no/such"}}},
    "reference_outside": {
        "type": "object",
        "properties": {"a": {"$ref": "https://example.org/schema"}},
    },
    "unions": {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": ["null", "string"]}]}},
    },
    "tuple": {
        "type": "object",
        "properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}]}},
    },
    "bare_array": {"type": "object", "properties": {"a": {"type": "array"}}},
    "huge_array": {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 100_000}
        },
    },
    "pattern": {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "(?=x)\\d+", "maxLength": 9}},
    },
    "no_type": {
        "type": "object",
        "properties": {"a": {"description": "anything"}, "b": True, "c": {"allOf": [{}]}},
    },
    "quoted_keys": {
        "type": "object",
        "properties": {'a "b" \\ ü\n': {"enum": ['x "y"', 3, None, "ü"]}},
    },
    "rule_names": {
        "type": "object",
        "properties": {"string": {"type": "string"}, "value": {"type": "object"}},
    },
    "not_an_object": {"type": "string"},
}

SAMPLED = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "mode": {"enum": ["lines", 'a "quoted" \\ one', 3]},
        "deep": {"type": "boolean"},
        "limit": {"type": "integer"},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["path", "mode", "limit"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def vocabulary():
    loaded = Vocabulary(embedded_path())
    yield loaded
    loaded.close()


def compiles(vocabulary: Vocabulary, text: str) -> bool:
    try:
        Grammar(vocabulary, text)
    except ModelBroken:
        return False
    return True


def call_grammar(tool_schemas: list[ToolSchema]) -> str:
    return GENERIC.grammar(tool_schemas, marked=False, once=True)


def tool_schema(name: str, parameters: dict) -> ToolSchema:
    return ToolSchema(name, "A tool.", parameters)


def test_an_invalid_grammar_is_refused(vocabulary):
    assert not compiles(vocabulary, "root ::= nowhere")


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_every_odd_schema_has_a_grammar_that_compiles_in_every_format(vocabulary, form):
    for name, schema in ODD_SCHEMAS.items():
        tool = tool_schema(name, schema)
        for marked, once in ((True, False), (False, True)):
            assert compiles(vocabulary, form.grammar([tool], marked=marked, once=once)), name
        for head in (Head(0, sure=True, json=True), Head(0, sure=True)):
            assert compiles(vocabulary, form.rest(tool, head)), name


def test_a_grammar_over_all_odd_schemas_compiles(vocabulary):
    schemas = [tool_schema(name, schema) for name, schema in ODD_SCHEMAS.items()]
    assert compiles(vocabulary, call_grammar(schemas))


@pytest.mark.skipif(not LIVEMCP.exists(), reason="the LiveMCP catalogue is not here")
def test_every_tool_of_a_large_catalog_has_a_grammar_that_compiles(vocabulary):
    records = [json.loads(line) for line in LIVEMCP.read_text(encoding="utf-8").splitlines()]
    refused = [
        record["name"]
        for record in records
        if not compiles(
            vocabulary, call_grammar([tool_schema(record["name"], record["parameters"])])
        )
    ]
    assert refused == []


def accepts(vocabulary: Vocabulary, grammar_text: str, text: str) -> bool:
    """Whether a grammar accepts a text token by token, including its end."""
    grammar = Grammar(vocabulary, grammar_text)
    end = vocabulary.tokens("<|im_end|>", special=True)
    for token in (*vocabulary.tokens(text), *end):
        if grammar.allows([token]) != [True]:
            return False
        grammar.accept(token)
    return True


@pytest.mark.parametrize(
    ("arguments", "passes"),
    [
        ({"path": 'a "b" \\ ü\n', "mode": "lines", "limit": -3}, True),
        ({"path": "", "mode": 3, "limit": 0, "deep": True, "share": 0.5, "tags": ["x", "y"]}, True),
        ({"path": "", "mode": 'a "quoted" \\ one', "limit": 0, "share": None}, True),
        ({"path": "", "mode": "lines"}, False),
        ({"path": "", "mode": "pages", "limit": 1}, False),
        ({"path": "", "mode": "lines", "limit": 1.5}, False),
        ({"path": "", "mode": "lines", "limit": 1, "tags": ["x", "y", "z"]}, False),
        ({"path": "", "mode": "lines", "limit": 1, "other": 1}, False),
    ],
)
def test_the_grammar_accepts_exactly_the_calls_that_fit_the_schema(vocabulary, arguments, passes):
    grammar = call_grammar([tool_schema("scan", SAMPLED)])
    assert accepts(vocabulary, grammar, call_text(Call("scan", arguments))) is passes


def test_optional_arguments_follow_the_order_of_the_schema(vocabulary):
    grammar = call_grammar(
        [
            tool_schema(
                "t", {"type": "object", "properties": {"a": {"type": "null"}, "b": {"const": 1}}}
            )
        ]
    )
    for arguments in ({}, {"a": None}, {"b": 1}, {"a": None, "b": 1}):
        assert accepts(vocabulary, grammar, call_text(Call("t", arguments)))
    assert not accepts(vocabulary, grammar, call_text(Call("t", {"b": 1, "a": None})))


def test_a_grammar_of_calls_rejects_plain_text_and_other_tools(vocabulary):
    tools = [tool_schema("t", {})]
    assert not accepts(vocabulary, call_grammar(tools), "Hello there.")
    assert not accepts(vocabulary, call_grammar(tools), '{"name": "other", "arguments": {}}')


@pytest.mark.slow
async def test_calls_sampled_at_a_high_temperature_fit_the_schema():
    model = LocalModel(embedded_path(), name="embedded")
    tools = (
        tool_schema("scan", SAMPLED),
        tool_schema("other", {"type": "object", "properties": {}}),
    )
    try:
        for words in ("Scan notes.txt!", 'Ünïcode and "quotes"'):
            request = Request(
                (Message("user", words),),
                callable_now=tools,
                want="call",
                temperature=1.5,
                max_tokens=150,
            )
            replies = [piece async for piece in model.stream(request) if isinstance(piece, Reply)]
            assert replies[-1].fault == "" or replies[-1].cut
            call = replies[-1].call
            if call is not None and call.name == "scan":
                Draft202012Validator(SAMPLED).validate(dict(call.arguments))
    finally:
        await asyncio.wait_for(model.aclose(), 600)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("I read a.txt first. Next: caller.", True),
        ("All is known: ja, ü. Next: conclusion.", True),
        ("It cannot be done.\nNext: give up.", True),
        ("Next: give up.", True),
        ("Next: caller. I read it. Next: conclusion.", True),
        ("I read a.txt first.", False),
        ("I read it. Next: summarizer.", False),
        ("I read it.\n\nNext: caller.", False),
        ("I read it. Next: caller. Action: read_file", False),
        ('{"name": "read_file"} Next: caller.', False),
        ("word " * 80 + "Next: caller.", False),
    ],
)
def test_a_text_passes_if_it_is_a_short_line_with_an_ending(vocabulary, text, passes):
    grammar = ending_grammar(("Next: caller.", "Next: conclusion.", "Next: give up."), 1024)
    assert accepts(vocabulary, grammar, text) is passes


@pytest.mark.parametrize(("max_tokens", "passes"), [(24, True), (23, False), (10, False)])
def test_the_line_before_the_ending_shrinks_with_the_output_limit(vocabulary, max_tokens, passes):
    grammar = ending_grammar(("Next: caller.",), max_tokens)
    assert accepts(vocabulary, grammar, "Next: caller.")
    assert accepts(vocabulary, grammar, "I read it. Next: caller.") is passes
