from ecoshell.messages import Call, ToolDocument
from ecoshell.models.formats import GENERIC
from ecoshell.models.protocol import parse_reply
from ecoshell.modes.stepwise.arguments import call_request, misfits, narrowed, only_call, takes_named

STRING = {"type": "string"}
READ = ToolDocument(
    "read",
    "",
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "File."}, "start_line": {"type": "integer"}},
        "required": ["path"],
    },
)
CONVERT = ToolDocument(
    "convert",
    "",
    {
        "type": "object",
        "properties": {"value": STRING, "from_unit": STRING, "to_unit": STRING},
        "required": ["value", "from_unit", "to_unit"],
    },
)
FIND = ToolDocument(
    "find",
    "",
    {
        "type": "object",
        "properties": {"text": STRING, "path": STRING, "regex": {"type": "boolean"}},
        "required": ["text"],
    },
)
QUERY = ToolDocument(
    "query",
    "",
    {
        "type": "object",
        "properties": {"query": STRING, "path": {"type": "string", "description": "JSON file."}},
        "required": ["query"],
    },
)
LIST = ToolDocument(
    "list", "", {"type": "object", "properties": {"path": {"type": "string", "description": "Folder to list."}}}
)
SHADE = ToolDocument(
    "shade",
    "",
    {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "integer"}},
        "required": ["colour", "count"],
    },
)


def call_of(document: ToolDocument, question: str) -> Call | None:
    return only_call(narrowed(document, question, question))


def test_a_request_that_leaves_one_choice_needs_no_model():
    assert call_of(READ, "Read notes.txt.") == Call("read", {"path": "notes.txt"})
    assert call_of(CONVERT, "Convert 5 miles to km.") == Call(
        "convert", {"value": "5", "from_unit": "miles", "to_unit": "km"}
    )
    assert call_of(SHADE, "Draw 3 blue dots.") == Call("shade", {"colour": "blue", "count": 3})
    assert call_of(LIST, "List the files.") == Call("list", {})


def test_two_choices_are_left_to_the_model():
    assert call_of(READ, "Read a.txt or b.txt.") is None


def test_an_optional_argument_is_kept_only_when_the_request_offers_it():
    assert set(narrowed(FIND, "Find TODO", "Find TODO").parameters["properties"]) == {"text"}
    assert narrowed(FIND, "Find TODO in a.py", "").parameters["properties"]["path"] == {"enum": ["a.py"]}


def test_a_later_part_takes_what_it_lacks_from_the_whole_question():
    question = "Read notes.txt and then show it again."
    assert only_call(narrowed(READ, "show it again", question)) == Call("read", {"path": "notes.txt"})


def test_a_required_argument_without_an_offer_stays_free():
    free = narrowed(READ, "Read it!", "Read it!")
    assert free.parameters["properties"]["path"] == READ.parameters["properties"]["path"]
    assert only_call(free) is None


def test_the_request_to_the_model_is_decoded_under_the_narrowed_document_alone():
    document = narrowed(FIND, "Find the word budget in all files", "")
    request = call_request(document, "Find the word budget", "no such text")
    assert request.callable_now == (document,)
    assert request.want == "call"
    assert "no such text" in request.messages[-1].text
    grammar = GENERIC.grammar(request.callable_now, marked=False, once=True)
    assert '"budget\\"' in grammar.replace("\\\\", "\\")
    reply = parse_reply('{"call": {"name": "find", "arguments": {"text": "elephant"}}}', request)
    assert reply.fault


def test_tools_that_need_or_ignore_what_the_request_names_misfit():
    assert misfits(READ, "Hello there!") == 1
    assert misfits(READ, "Read notes.txt.") == 0
    assert misfits(LIST, "Show me notes.txt.") == 1
    assert misfits(CONVERT, "Show me notes.txt.") == 2
    assert misfits(FIND, "Find TODO in https://a.org.") == 0
    assert misfits(QUERY, "What is in notes.txt?") == 1
    assert misfits(QUERY, "What is in data.json?") == misfits(QUERY, "What is in data.jsonl?") == 0


def test_a_tool_takes_a_file_that_a_request_names_where_it_needs_nothing_else():
    assert takes_named(READ, "What is the budget in notes.txt?")
    assert not takes_named(READ, "What is the budget?")
    assert not takes_named(READ, "Who was J.R.R. Tolkien, and is the U.S. large?")
    assert not takes_named(CONVERT, "What is the budget in notes.txt?")


def test_a_number_with_zeros_before_it_is_offered_as_the_number_it_is():
    add = ToolDocument("add", "", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert narrowed(add, "add 007", "").parameters["properties"] == {"n": {"enum": [7]}}
