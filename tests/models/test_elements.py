"""Calls as XML elements: round trips, grammars and faults."""

import json
from importlib.util import find_spec

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.call_format import CallFormat
from ecoshell.models.elements import ANY, STRING, read_value, value_kinds, value_text
from ecoshell.models.formats import FORMATS, HERMES, format_of_text
from ecoshell.models.protocol import parse_reply

FORMS = [form for form in FORMATS.values() if form.elements]
QUESTION = (Message("user", "What is in notes.txt?"),)
PROPERTIES = {
    "path": {"type": "string"},
    "mode": {"enum": ["lines", "5", "null"]},
    "limit": {"type": "integer"},
    "level": {"enum": ["5", 5, None]},
    "deep": {"type": "boolean"},
    "share": {"type": ["number", "null"]},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "either": {
        "anyOf": [
            {"type": "integer"},
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
        ]
    },
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    "edit": {
        "type": "object",
        "properties": {"old": {"type": "string"}, "all": {"type": "boolean"}},
        "required": ["old"],
    },
    "any": {"description": "Anything."},
}
SCAN = ToolSchema(
    "scan",
    "Scan files.",
    {
        "type": "object",
        "properties": PROPERTIES,
        "required": ["path", "limit"],
        "additionalProperties": False,
    },
)
LIST = ToolSchema("list_files", "List files.", {"type": "object", "properties": {}})

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x7f"), max_size=30),
    st.text('<>/"[]{}\\\n 1parmetvluk_', max_size=30),
    st.sampled_from(
        [
            "",
            "\n",
            " ",
            "5",
            "-0",
            "1e9",
            "null",
            "None",
            "True",
            '"a"',
            "[1]",
            '{"a": 1}',
            "\n\na\n",
            "</p",
        ]
    ),
)
values = st.fixed_dictionaries(
    {"path": texts, "limit": st.integers(-(10**15), 10**15)},
    optional={
        "mode": st.sampled_from(["lines", "5", "null"]),
        "level": st.sampled_from(["5", 5, None]),
        "deep": st.booleans(),
        "share": st.none() | st.integers(-9, 9) | st.sampled_from([0.5, -2.25, 1.0]),
        "note": st.none() | texts,
        "either": st.integers(-9, 9)
        | texts
        | st.lists(st.sampled_from(["a", "</parameter>", '"']), max_size=3),
        "tags": st.lists(texts, max_size=3),
        "edit": st.fixed_dictionaries({"old": texts}, optional={"all": st.booleans()}),
        "any": st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | texts,
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
            ),
            max_leaves=4,
        ),
    },
)


def read(text: str, form: CallFormat, *, cut: bool = False) -> Reply:
    return parse_reply(text, Request(QUESTION, (SCAN, LIST), (SCAN, LIST)), cut=cut, form=form)


def in_schema_order(arguments: dict) -> dict:
    ordered = {key: arguments[key] for key in PROPERTIES if key in arguments}
    if "edit" in ordered:
        ordered["edit"] = dict(
            sorted(ordered["edit"].items(), reverse=True)
        )  # `old` is declared before `all`
    return ordered


def is_same(first: object, second: object) -> bool:
    """Compare two JSON values; `1`, `1.0` and `true` differ."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


# -- writing, reading and the grammar


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@settings(max_examples=150, deadline=None)
@given(arguments=values)
def test_a_written_call_is_parsed_unchanged(form, arguments):
    Draft202012Validator(SCAN.parameters).validate(arguments)
    written = form.write("scan", json.dumps(arguments), parameters=SCAN.parameters)
    reply = read(f"I look.\n{written}", form)
    assert not reply.fault
    assert reply.text == "I look."
    assert is_same(dict(reply.calls[0].arguments), arguments)


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the local extra is not installed")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_grammar_accepts_written_calls_and_rejects_invalid_ones(form):
    from ecoshell.models.choosing import Grammar
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.llama import Vocabulary

    vocabulary = Vocabulary(embedded_path())
    grammar = form.grammar([SCAN, LIST], marked=False, once=True)
    end = vocabulary.tokens("<|im_end|>", special=True)

    def accepts(text: str) -> bool:
        state = Grammar(vocabulary, grammar)
        for token in (*vocabulary.tokens(text), *end):
            if not state.allows([token])[0]:
                return False
            state.accept(token)
        return True

    def write(**arguments: object) -> str:
        return form.write("scan", json.dumps(arguments), parameters=SCAN.parameters)

    @settings(max_examples=25, deadline=None)
    @given(arguments=values)
    def passes(arguments):
        tag = form.elements.value_end.strip()
        strings = [
            arguments["path"],
            arguments.get("note"),
            arguments.get("any"),
            arguments.get("either"),
        ]
        assume(not any(tag in text for text in strings if isinstance(text, str)))
        assume(
            not isinstance(arguments.get("any"), list | dict)
        )  # grammars of open schemas generate text only
        written = write(**in_schema_order(arguments))
        assume(
            b"".join(map(vocabulary.piece, vocabulary.tokens(written))) == written.encode()
        )  # the tokenizer lacks some bytes
        assert accepts(written)

    try:
        passes()
        assert not accepts(write(path="a"))
        assert not accepts(write(limit=1))
        assert not accepts(write(path="a", limit="one"))
        assert not accepts(write(path="a", limit=1, deep=1))
        assert not accepts(write(path="a", mode="pages", limit=1))
        assert not accepts(write(path="a", limit=1, tags=["a", "b", "c", "d"]))
        assert not accepts(write(path="a", limit=1, edit={"all": True}))
        assert not accepts(write(path="a", limit=1, other=1))
        assert not accepts(write(path="a", limit=1).replace("scan", "other"))
        assert not accepts("It holds a list.")
    finally:
        vocabulary.close()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"enum": ["5", "6"]}, "5", "5"),
        ({"allOf": [{"type": "string"}]}, "5", "5"),
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "boolean"}, "True", True),
        ({"type": "object"}, "{'a': None}", {"a": None}),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "integer"}, "five", "five"),
        ({"type": "array"}, "[" * 5000, "[" * 5000),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "5", "5"),
        ({"type": ["string", "null"]}, '"null"', "null"),
        ({"type": ["string", "integer"]}, "5", 5),
        ({"type": ["string", "integer"]}, "true", "true"),
        ({"type": "number"}, "1e999", "1e999"),
        ({}, "9" * 5000, "9" * 5000),
        ({}, "[1, 2]", [1, 2]),
        ({}, "a, b", "a, b"),
    ],
)
def test_the_schema_decides_the_value_of_a_text(schema, text, value):
    assert is_same(read_value(text, value_kinds(schema, schema)), value)


@given(
    text=texts,
    kinds=st.sampled_from(
        [ANY, STRING, frozenset({"string", "null"}), frozenset({"string", "integer"})]
    ),
)
def test_any_string_can_be_written(text, kinds):
    assert is_same(read_value(value_text(text, kinds), kinds), text)


# -- calls as models write them


QWEN = FORMATS["qwen3-coder"]
GLM = FORMATS["glm-4.5"]
MINIMAX = FORMATS["minimax-m2"]
SCANNED = Call("scan", {"path": "a", "limit": 3})
FAULTY = [
    (QWEN, "<tool_call>\n<function=sc"),
    (QWEN, "<tool_call>\n<function=scan>\n<parameter=pa"),
    (QWEN, "<tool_call>\n<function=scan>\n<parameter=path>\nhalf a val"),
    (
        QWEN,
        "<tool_call>\n<function=scan>\n<parameter=path>\na\n</parameter>\n<parameter=limit>\n3\n</parameter>\n",
    ),
    (
        GLM,
        "<tool_call>scan\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>limit</arg_key>\n<arg_va",
    ),
    (GLM, "<tool_call>scan"),
    (MINIMAX, '<minimax:tool_call>\n<invoke name="scan">\n<parameter name="path">a'),
]


@pytest.mark.parametrize(("form", "text"), FAULTY)
def test_a_truncated_call_is_a_fault_and_never_a_partial_call(form, text):
    assert "was cut" in read(text, form, cut=True).fault
    assert "could not be read" in read(text, form).fault
    assert not read(text, form).calls


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            QWEN,
            "<tool_call><function=scan><parameter=path>a</parameter><parameter=limit>3</parameter></function>",
        ),
        (
            QWEN,
            "<function=scan>\n<parameter=path>\na\n</parameter>\n<parameter=limit>\n3\n</parameter>\n</function>",
        ),
        (
            QWEN,
            "<tool_call>\n<function=scan>\n<parameter=path>\na\n</parameter>\n<parameter=limit>\n3\n</parameter>\n</tool_call>",
        ),
        (
            QWEN,
            '<tool_call>\n{"name": "scan", "arguments": {"path": "a", "limit": 3}}\n</tool_call>',
        ),
        (
            GLM,
            "<tool_call>scan<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>limit</arg_key><arg_value>3</arg_value></tool_call>",
        ),
        (
            MINIMAX,
            '<minimax:tool_call><invoke name="scan"><parameter name="path">a</parameter>'
            '<parameter name="limit"> 3 </parameter></invoke>',
        ),
    ],
)
def test_missing_newlines_and_outer_tags_are_accepted(form, text):
    assert read(text, form).calls == (SCANNED,)
    if not text.startswith("<function"):
        assert format_of_text(text) in (form, FORMATS["glm-4.7"], HERMES)


def test_unknown_tools_and_invalid_arguments_are_faults():
    call = GLM.write("scna", "{}")
    assert "no tool named 'scna'" in read(call, GLM).fault
    assert "'path' is a required property" in read(QWEN.write("scan", '{"limit": 1}'), QWEN).fault
    assert "limit" in read(QWEN.write("scan", '{"path": "a", "limit": "one"}'), QWEN).fault


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_truncated_second_call_leaves_the_first(form):
    text = form.write("list_files", "{}") + form.write("scan", '{"path": "a", "limit": 3}')[:-45]
    reply = read(text, form, cut=True)
    assert [call.name for call in reply.calls] == ["list_files"]
    assert not reply.fault


def test_newlines_and_closing_tags_in_a_text_are_kept():
    text = "\n<a>\n</parameter> stays\n\n"
    call = QWEN.write("scan", json.dumps({"path": text, "limit": 3}), parameters=SCAN.parameters)
    assert read(call, QWEN).calls == (Call("scan", {"path": text, "limit": 3}),)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(data=st.data())
def test_parsing_any_text_never_raises(form, data):
    pieces = [
        *(piece for piece in form.elements.markers if piece),
        form.opens,
        form.end,
        "scan",
        "path",
        "5",
        "\n",
        "{",
        '"',
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
    reply = read(text, form)
    assert not (reply.calls and reply.fault)
