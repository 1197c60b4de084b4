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


def test_a_document_as_text_says_everything_the_schema_says():
    assert SEARCH.as_text().splitlines() == [
        "search: Search the web.",
        "- query (string): What to look for.",
        '- limit (integer, optional, {"default": 5})',
        '- site (any, optional, {"anyOf": [{"type": "string"}, {"type": "null"}]})',
        'Schema: {"$defs": {"x": {"type": "string"}}}',
    ]


def test_a_document_as_text_is_shorter_than_as_an_entry_of_the_array():
    assert len(SEARCH.as_text()) < 0.7 * len(SEARCH.entry)


def test_a_document_without_arguments_is_one_line():
    assert ToolSchema("now", "Tell the time.", {}).as_text() == "now: Tell the time."


def test_the_subject_of_a_call_is_the_tool_it_is_about():
    assert Call("read_file", {"path": "a"}).subject == "read_file"
    assert Call(TOOL_REGISTER, {"tool_name": "read_file"}).subject == "read_file"
    assert Call(TOOL_CALL, {"name": "read_file", "arguments": {}}).subject == "read_file"
    assert Call(TOOL_REGISTER, {}).subject == TOOL_REGISTER


def test_a_summary_is_the_first_sentence_or_how_it_begins():
    told = {
        "Send, e.g. a letter. It is free.": "Send, e.g. a letter.",
        "读取文件。很快。": "读取文件。",
        " Read\ta file\nArgs: path": "Read a file",
        "a" * 200: "a" * 159 + "…",
        "": "",
    }
    assert {description: ToolSchema("tool", description, {}).summary for description in told} == told
