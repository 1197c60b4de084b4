import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import ToolSchema
from ecoshell.planning.catp.types import ANY, Signature, serves, signature
from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "enum", "format", "required", "image", "x"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


def tool_schema(name="tool", *, required=(), **properties):
    return ToolSchema(
        name, "A tool.", {"type": "object", "properties": properties, "required": list(required)}
    )


@pytest.mark.parametrize(
    ("name", "schema", "kinds"),
    [
        ("query", {"type": "string"}, {"text"}),
        ("path", {"type": "string"}, {"file"}),
        ("output_dir", {"type": "string", "format": "path"}, {"file"}),
        ("image_path", {"type": "string"}, {"file"}),
        ("imageUrl", {"type": "string"}, {"url"}),
        ("where", {"type": "string", "format": "uri"}, {"url"}),
        ("image", {"type": "string"}, {"image"}),
        ("data", {"type": "string", "contentMediaType": "image/png"}, {"image"}),
        ("speech", {"type": "string", "contentMediaType": "audio/wav"}, {"audio"}),
        ("images", {"type": "array", "items": {"type": "string"}}, {"image"}),
        ("limit", {"type": "integer"}, {"number"}),
        ("image_count", {"type": "integer"}, {"number"}),
        ("image_size", {"enum": ["small", "large"]}, {"text"}),
        ("options", {"type": "object"}, {"json"}),
        ("rows", {"type": "array", "items": {"type": "object"}}, {"table"}),
        ("tags", {"type": "array", "items": {"type": "string"}}, {"json"}),
        (
            "value",
            {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
            {"number", "text"},
        ),
        ("value", {"type": ["integer", "null"]}, {"number"}),
        ("value", {}, {ANY}),
        ("value", True, {ANY}),
    ],
)
def test_the_type_of_an_argument_follows_its_schema_or_its_name(name, schema, kinds):
    assert signature(tool_schema(**{name: schema})).takes == kinds


def test_only_arguments_that_text_cannot_provide_need_a_dependency():
    tool = tool_schema(
        required=("image", "prompt"), image={"type": "string"}, prompt={"type": "string"}
    )
    assert signature(tool) == Signature(
        frozenset({"image", "text"}), frozenset({"text"}), ("image",)
    )
    assert signature(tool_schema(image={"type": "string"})).needs == ()


@pytest.mark.parametrize(
    ("name", "gives"),
    [
        ("read_file", {"text"}),
        ("describe_image", {"text"}),
        ("image_captioning", {"text"}),
        ("text_to_image", {"image", "text"}),
        ("image_to_text", {"text"}),
        ("generateImage", {"image", "text"}),
        ("take_screenshot", {"image", "text"}),
        ("browser_screenshot", {"image", "text"}),
        ("record_audio", {"audio", "text"}),
    ],
)
def test_a_tool_gives_text_unless_its_name_implies_more(name, gives):
    assert signature(tool_schema(name)).gives == gives


def test_text_can_serve_as_any_written_type_but_not_as_media():
    assert all(
        serves({"text"}, kind) for kind in ("text", "json", "number", "table", "file", "url")
    )
    assert not any(serves({"text"}, kind) for kind in ("image", "audio", "video"))
    assert serves({"file"}, "image")
    assert not serves({"image"}, "text")
    assert not serves({"number"}, "url")
    assert serves({ANY}, "video")
    assert serves({"video"}, ANY)


def test_built_in_tools_take_and_give_text(tmp_path):
    for tool in builtin_tools(Workspace(tmp_path), options=ToolOptions()):
        types = signature(tool.schema)
        assert any(serves({"text"}, kind) for kind in types.takes)
        assert (types.gives, types.needs) == ({"text"}, ())


@given(st.text(max_size=12), JSON_VALUES)
def test_any_schema_has_a_signature(name, schema):
    for parameters in ({"properties": {name: schema}, "required": schema}, {"properties": schema}):
        types = signature(ToolSchema(name, "", parameters))
        assert types.gives
        assert set(types.needs) <= types.takes
