from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, Call, ToolSchema

SEARCH = ToolSchema(
    "search",
    "Search the web.",
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for.", "title": "Query"},
            "limit": {"type": "integer", "default": 5},
            "site": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["query"],
        "$defs": {"x": {"type": "string"}},
    },
)


def test_a_tool_schema_as_text_is_complete():
    assert SEARCH.as_text().splitlines() == [
        "search: Search the web.",
        "- query (string): What to look for.",
        '- limit (integer, optional, {"default": 5})',
        '- site (any, optional, {"anyOf": [{"type": "string"}, {"type": "null"}]})',
        'Schema: {"$defs": {"x": {"type": "string"}}}',
    ]


def test_a_tool_schema_as_text_is_shorter_than_as_json():
    assert len(SEARCH.as_text()) < 0.7 * len(SEARCH.entry)


def test_a_tool_schema_without_arguments_is_one_line():
    assert ToolSchema("now", "Tell the time.", {}).as_text() == "now: Tell the time."


def test_the_subject_of_a_call_is_the_tool_it_concerns():
    assert Call("read_file", {"path": "a"}).subject == "read_file"
    assert Call(TOOL_REGISTER, {"tool_name": "read_file"}).subject == "read_file"
    assert Call(TOOL_CALL, {"name": "read_file", "arguments": {}}).subject == "read_file"
    assert Call(TOOL_REGISTER, {}).subject == TOOL_REGISTER


def test_a_summary_is_the_first_sentence_or_its_start():
    summaries = {
        "Send, e.g. a letter. It is free.": "Send, e.g. a letter.",
        "读取文件。很快。": "读取文件。",
        " Read\ta file\nArgs: path": "Read a file",
        "a" * 200: "a" * 159 + "…",
        "": "",
    }
    assert {text: ToolSchema("tool", text, {}).summary for text in summaries} == summaries
