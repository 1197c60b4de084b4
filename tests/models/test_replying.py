"""A local model's reply as it comes: what is shown, what is held to a grammar, and what it came to."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ecoshell.catalog import FINISH_SCHEMA
from ecoshell.messages import Call, Message, ToolSchema, Usage
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.replying import QUOTE, AnswerText, Quoting

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from ecoshell.models.choosing import Chooser, Grammar, Sampling
from ecoshell.models.embedded import embedded_path
from ecoshell.models.engine import EngineOptions
from ecoshell.models.formats import FORMATS, GENERIC, HERMES, CallFormat
from ecoshell.models.llama import Vocabulary
from ecoshell.models.local import LocalModel
from ecoshell.models.replying import ReplyForm, ReplyReader

READ = ToolSchema(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
ASKED = (Message("user", "What is in notes.txt?"),)
CALL = '{"name": "read_file", "arguments": {"path": "notes.txt"}}'
TAGS = ("<think>", "</think>")
ELEMENT_FORMATS = [form for form in FORMATS.values() if form.elements]


def said(*results: str) -> Request:
    return Request((*ASKED, *(Message("tool", result) for result in results), Message("user", "And?")))


def whole(request: Request, text: str) -> str:
    """A text that comes in one piece."""
    quoting = Quoting(request)
    return quoting.feed(text) + quoting.end()


@given(st.lists(st.sampled_from(["[", "[res", "ult]", QUOTE, "a", " ", "]"]), max_size=9), st.text(max_size=9))
def test_a_mark_in_pieces_is_the_last_result_once_and_nothing_else_is_lost(pieces, result):
    quoting, text = Quoting(said("first", result)), "".join(pieces)
    told = "".join(map(quoting.feed, pieces)) + quoting.end()
    assert told == whole(said("first", result), text)
    if "\n" not in result.strip():
        assert told == text.replace(QUOTE, result.strip() or QUOTE, 1)


@pytest.mark.parametrize(
    ("said_by_it", "told"),
    [
        ("a.csv says:\n[result]", "a.csv says:\n```\nx,y\n1,2\n```"),
        ("It prints: [result]. Right?", "It prints: \n```\nx,y\n1,2\n```\n. Right?"),
        ("[result]\nThat is all.", "```\nx,y\n1,2\n```\nThat is all."),
    ],
)
def test_several_lines_are_told_as_a_block_of_code(said_by_it, told):
    quoting = Quoting(said("x,y\n1,2\n"))
    assert whole(said("x,y\n1,2\n"), said_by_it) == told
    assert "".join(map(quoting.feed, said_by_it)) + quoting.end() == told
    assert whole(said("a\n```\nb"), "[result]") == "````\na\n```\nb\n````"


@given(st.text(max_size=20), st.text(max_size=5), st.text(max_size=20))
def test_what_is_shortened_is_told_whole(before, result, after):
    assume(QUOTE not in before + result + after and "\n" not in result.strip())
    text, quoting = f"{before}{result.strip()}{after}", Quoting(said(result))
    assert whole(said(result), quoting.shortened(text)) == text
    assert (QUOTE in quoting.shortened(text)) is bool(result.strip())
    assert Quoting(Request(ASKED)).shortened(text) == text


REASONING_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' }}{# </think> #}"
)


class Held(Chooser):
    """A chooser that says which of its grammars is in force."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, Sampling())
        self.after: list[str] = []

    def constrain(self, grammar: str, said: str = "") -> None:
        super().constrain(grammar, said)
        self.after.append(said)

    @property
    def holds(self) -> bool:
        return self._grammar is not None


@pytest.fixture(scope="module")
def vocabulary():
    loaded = Vocabulary(embedded_path())
    yield loaded
    loaded.close()


@pytest.fixture
def chooser(vocabulary):
    made = Held(vocabulary)
    yield made
    made.close()


def request(want: str = "either", **more) -> Request:
    return Request(ASKED, (READ,), (READ,), want, **more)  # type: ignore[arg-type]


def heard(text: str, chooser: Held, form: ReplyForm | None = None, asked: Request | None = None, *, size: int = 1):
    """What is shown of a text that comes in pieces, what was reasoned, and the reply."""
    reader = ReplyReader(asked or request(), form or ReplyForm(HERMES))
    pieces: list[Delta] = []
    for place in range(0, len(text), size):
        pieces += reader.feed(text[place : place + size], chooser)
        if reader.over:
            break
    pieces += reader.finish()
    said = "".join(piece.text for piece in pieces if not piece.reasoning)
    reasoned = "".join(piece.text for piece in pieces if piece.reasoning)
    return said, reasoned, reader.reply(Usage(), cut=False)


@pytest.mark.parametrize("size", [1, 3, 7, 500])
@pytest.mark.parametrize(
    "text",
    [
        "It says: buy milk, <b>now</b> {really}, for `2` coins.",
        '```json\n{"milk": [1, 2]}\n```',
        '{"name": "Anna", "age": 3}',
        "```python\nprint({'name': 1})\n```",
        "a < b and a <tool> b",
    ],
)
def test_an_answer_is_shown_whole_and_held_to_nothing(chooser, text, size):
    said, _, reply = heard(text, chooser, size=size)
    assert said == reply.text == text
    assert not chooser.holds
    assert not reply.calls


@pytest.mark.parametrize("size", [1, 2, 5, 500])
@pytest.mark.parametrize(
    ("lead", "written"),
    [
        ("", f"<tool_call>\n{CALL}\n</tool_call>"),
        ("I look at it.\n", f"<tool_call>\n{CALL}\n</tool_call>"),
        ("", CALL),
        ("I look at it.\n", f"```json\n{CALL}\n```"),
        ("", f"{{{CALL}}}"),
    ],
)
def test_no_byte_of_a_call_is_shown_and_its_grammar_holds_once_it_began(chooser, lead, written, size):
    said, _, reply = heard(lead + written, chooser, size=size)
    assert said == lead
    assert reply.calls == (Call("read_file", {"path": "notes.txt"}),)
    assert reply.text == lead.strip()
    assert chooser.after


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_call_in_any_format_is_not_shown(chooser, form):
    written = form.write("read_file", '{"path": "notes.txt"}')
    said, _, reply = heard(f"I look.\n{written}", chooser, ReplyForm(form))
    assert said == "I look.\n"
    assert reply.calls == (Call("read_file", {"path": "notes.txt"}),)


def test_after_the_marker_only_a_tool_that_may_be_called_now_can_be_named(vocabulary, chooser):
    reader = ReplyReader(request(), ReplyForm(HERMES))
    reader.feed("<tool_call>\n", chooser)
    logits = _certain(vocabulary, '{"')
    assert vocabulary.piece(chooser.choose(logits)).startswith(b'{"')
    written = b'{"'
    for _ in range(80):
        token = chooser.choose(_certain(vocabulary, "zebra"))
        written += vocabulary.piece(token)
    assert b"".join(written.split()).startswith(b'{"name":"read_file","arguments":{"path":"')


def test_a_call_of_a_tool_that_is_not_there_is_not_waited_for(chooser):
    reader = ReplyReader(request(), ReplyForm(HERMES))
    said = reader.feed('I rename it. {"name": "rename", "arguments": {"from": "a", "to": "b"', chooser)
    reply = reader.reply(Usage(), cut=False)
    assert "".join(one.text for one in said).strip() == reply.text == "I rename it."
    assert reader.over
    assert not reader.refused
    assert "no tool named 'rename'" in reply.fault
    assert reply.attempt == Call("rename")


@pytest.mark.parametrize("space", ["", " ", "\n    "])
def test_a_call_may_be_written_over_several_lines(vocabulary, space):
    inner = f'{{{space}"name": "read_file",{space}"arguments": {{{space}"path": "notes.txt"{space}}}{space}}}'
    grammar = Grammar(vocabulary, HERMES.grammar((READ,), marked=True, once=True))
    try:
        for token in vocabulary.tokens(f"\n{inner}\n</tool_call>"):
            assert grammar.allows([token]) == [True]
            grammar.accept(token)
    finally:
        grammar.close()


def _certain(vocabulary: Vocabulary, wanted: str):
    """Logits of a model that wants to say one thing."""
    import numpy as np

    logits = np.zeros(vocabulary.size, dtype=np.float32)
    logits[vocabulary.tokens(wanted)[0]] = 9
    return logits


def test_a_marker_that_is_followed_by_what_the_grammar_cannot_take_leaves_the_reply_free(chooser):
    said, _, reply = heard("<tool_call>read_file please", chooser, size=500)
    assert said == ""
    assert "could not be read" in reply.fault
    assert not chooser.holds


def test_a_call_of_a_tool_that_was_never_named_is_not_shown_and_is_a_fault(chooser):
    said, _, reply = heard('{"name": "fetch_it", "arguments": {}}', chooser)
    assert said == ""
    assert "no tool named 'fetch_it'" in reply.fault


def test_where_text_is_wanted_a_call_ends_the_reply(chooser):
    reader = ReplyReader(request("text"), ReplyForm(HERMES))
    shown = [piece.text for sign in f"Milk. {CALL}" if not reader.over for piece in reader.feed(sign, chooser)]
    assert "".join(shown) == "Milk. "
    assert reader.over
    assert not reader.refused
    assert reader.reply(Usage(), cut=False) == Reply("Milk.", usage=Usage())


@pytest.mark.parametrize("size", [1, 4, 500])
def test_reasoning_is_shown_as_such_and_is_no_part_of_the_answer(chooser, size):
    form = ReplyForm(HERMES, TAGS)
    text = f"<think>\nA < b, or {CALL}?\n</think>\n\nIt says milk."
    said, reasoned, reply = heard(text, chooser, form, size=size)
    assert said.strip() == reply.text == "It says milk."
    assert reasoned.strip() == reply.reasoning == f"A < b, or {CALL}?"
    assert not reply.calls


def test_reasoning_that_the_prompt_opened_comes_before_a_call_that_is_wanted(chooser):
    form = ReplyForm(HERMES, TAGS, inside=True)
    reader = ReplyReader(request("call"), form)
    reader.feed("Which one?\n</think>\n\n", chooser)
    assert chooser.holds
    reader.feed(f"<tool_call>\n{CALL}\n</tool_call>", chooser)
    reply = reader.reply(Usage(), cut=False)
    assert reply.calls
    assert reply.reasoning == "Which one?"


ANSWER = 'Milk, "eggs" 😀\nand {bread}.'
ARGUMENTS = json.dumps({"give_up": False, "answer": ANSWER})


@pytest.mark.parametrize("size", [1, 4, 500])
@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, '<tool_call>\n{"name": "finish", "arguments": %s}\n</tool_call>'),
        (HERMES, '{"name": "finish", "arguments": %s}'),
        (GENERIC, '```json\n{"name": "finish", "arguments": %s}\n```'),
        (FORMATS["llama-json"], '{"name": "finish", "parameters": %s}'),
        (FORMATS["mistral"], '[TOOL_CALLS][{"name": "finish", "arguments": %s}]'),
        (FORMATS["mistral-named"], "[TOOL_CALLS]finish[ARGS]%s"),
    ],
)
def test_the_answer_in_a_call_of_finish_is_shown_as_it_is_written(form, text, size):
    asked = Request(ASKED, (READ, FINISH_SCHEMA), (READ, FINISH_SCHEMA))
    said, reply = answered(text % ARGUMENTS, asked, form, size)
    assert said == ("I have it.", ANSWER)
    assert reply.call == Call("finish", json.loads(ARGUMENTS))


@pytest.mark.parametrize("size", [1, 4, 500])
@pytest.mark.parametrize("form", ELEMENT_FORMATS, ids=lambda form: form.name)
def test_an_answer_in_an_xml_element_is_shown_while_it_is_written(form, size):
    asked = Request(ASKED, (READ, FINISH_SCHEMA), (READ, FINISH_SCHEMA))
    call = form.write("finish", ARGUMENTS, parameters=FINISH_SCHEMA.parameters)
    shown, reply = answered(call, asked, form, size)
    assert shown == ("I have it.", ANSWER)
    assert reply.call == Call("finish", json.loads(ARGUMENTS))
    assert answered(f'{{"name": "finish", "arguments": {ARGUMENTS}}}', asked, form, size)[0] == shown


@pytest.mark.parametrize("form", ELEMENT_FORMATS, ids=lambda form: form.name)
def test_text_before_an_xml_call_is_shown_and_the_call_is_held_to_the_grammar(chooser, form):
    call = form.write("read_file", '{"path": "notes.txt"}')
    shown, _, reply = heard(f"A < b. {call}", chooser, ReplyForm(form))
    assert (shown.strip(), reply.calls) == ("A < b.", (Call("read_file", {"path": "notes.txt"}),))
    assert chooser.holds


def test_a_call_without_its_opening_marker_is_recognised_by_the_function_tag(chooser):
    call = "<function=read_file>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>"
    shown, _, reply = heard(f"I look.\n{call}", chooser, ReplyForm(FORMATS["qwen3-coder"]))
    assert (shown.strip(), reply.calls) == ("I look.", (Call("read_file", {"path": "notes.txt"}),))
    assert chooser.holds


@pytest.mark.parametrize("size", [1, 500])
def test_of_another_call_nothing_is_shown_also_where_it_has_an_argument_answer(size):
    asked = Request(ASKED, (READ, FINISH_SCHEMA), (READ, FINISH_SCHEMA))
    text = '<tool_call>\n{"name": "read_file", "arguments": {"answer": "no"}}\n</tool_call>'
    assert answered(text, asked, HERMES, size)[0] == ("I have it.", "")


def answered(text: str, asked: Request, form: CallFormat, size: int) -> tuple[tuple[str, str], Reply]:
    """What is shown before a call, and as the answer in it, of a model that runs elsewhere; and the reply."""
    reader, text = ReplyReader(asked, ReplyForm(form, TAGS, is_remote=True)), f"I have it.\n{text}"
    shown = [piece for at in range(0, len(text), size) for piece in reader.feed(text[at : at + size])]
    shown += reader.finish()
    thought, answer = ("".join(one.text for one in shown if one.answer is about) for about in (False, True))
    return (thought.strip(), answer), reader.reply(Usage(), cut=False)


PARTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    CALL,
    CALL[:30],
    "```json\n",
    "```",
    "{",
    "}",
    "[",
    "word ",
    "<function=read_file>",
    "<parameter=path>\na\n</parameter>\n</function>",
]


@given(
    parts=st.lists(st.sampled_from(PARTS), max_size=6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    form=st.sampled_from([HERMES, GENERIC, FORMATS["llama-pythonic"], *ELEMENT_FORMATS]),
)
def test_in_whatever_pieces_a_reply_comes_the_same_is_shown(parts, sizes, form):
    text, shape = "".join(parts), ReplyForm(form, TAGS, is_remote=True)
    assume("````" not in text)  # of more than three such signs it depends on the pieces which of them are the fence
    whole, pieces = ReplyReader(request(), shape), ReplyReader(request(), shape)
    shown = [*whole.feed(text), *whole.finish()]
    place, heard = 0, list[Delta]()
    for size in sizes * len(text):
        heard += pieces.feed(text[place : place + size])
        place += size
        if place >= len(text):
            break
    heard += pieces.finish()
    for reasoning in (False, True):
        one, other = ("".join(one.text for one in told if one.reasoning is reasoning) for told in (shown, heard))
        assert one.strip() == other.strip()
    assert whole.reply(Usage(), cut=False) == pieces.reply(Usage(), cut=False)


def test_an_answer_that_begins_like_a_tag_is_shown_in_the_end(chooser):
    assert heard("<thi", chooser, ReplyForm(GENERIC, TAGS))[0] == "<thi"


# -- with a model


@pytest.fixture(scope="module")
def reasoner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with a template that opens reasoning in every prompt."""
    folder = tmp_path_factory.mktemp("reasoner")
    template, made = folder / "template.jinja", folder / "reasoner.gguf"
    template.write_text(REASONING_TEMPLATE)
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--force"]
    command += ["--chat-template-file", str(template), str(embedded_path()), str(made)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return made


ENDLESS = ("What is a river?", "Explain how bread is made.", "What do you think about music?")


async def test_endless_reasoning_is_closed_at_a_bound_and_an_answer_follows(reasoner):
    """On which question it reasons for long depends on how the processor rounds; on one of them it does."""
    model = LocalModel(reasoner, options=EngineOptions(context=1024))
    try:
        for question in ENDLESS:
            asked = Request((Message("user", question),), want="text", max_tokens=100)
            pieces = [piece async for piece in model.stream(asked)]
            reply = pieces[-1]
            assert isinstance(reply, Reply)
            assert reply.usage is not None
            assert reply.usage.reasoning <= 50
            if reply.usage.reasoning >= 36:
                break
    finally:
        await model.aclose()
    assert reply.usage.reasoning >= 36
    assert reply.reasoning
    assert reply.text
    assert "</think>" not in reply.reasoning + reply.text
    assert reply.usage.output <= 100
    deltas = [piece for piece in pieces if isinstance(piece, Delta)]
    assert "".join(delta.text for delta in deltas if delta.reasoning).strip() == reply.reasoning
    assert "".join(delta.text for delta in deltas if not delta.reasoning).strip() == reply.text


async def test_a_few_words_under_a_grammar_are_said_without_reasoning(reasoner):
    model = LocalModel(reasoner, options=EngineOptions(context=1024))
    try:
        asked = Request(
            (Message("user", "Is milk white?"),), want="text", max_tokens=8, grammar='root ::= "yes" | "no"'
        )
        replies = [piece async for piece in model.stream(asked) if isinstance(piece, Reply)]
    finally:
        await model.aclose()
    assert replies[0].text in {"yes", "no"}
    assert not replies[0].reasoning


async def test_the_reply_of_a_loaded_model_never_begins_with_a_call_where_text_is_wanted():
    model = LocalModel(embedded_path(), options=EngineOptions(context=1024))
    try:
        shots = (Message("user", "Read a."), Message("assistant", CALL)) * 6
        asked = Request((*shots, Message("user", "Read a.")), (READ,), (READ,), "text", max_tokens=30)
        pieces = [piece async for piece in model.stream(asked)]
    finally:
        await model.aclose()
    assert isinstance(pieces[-1], Reply)
    assert pieces[-1].text
    assert '"name": "read_file", "arguments"' not in pieces[-1].text
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.output <= 30
    assert pieces[-1].usage.input == model.size(asked).count


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUE = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def pieces(text: str, cuts: list[int]) -> list[str]:
    found, place = list[str](), 0
    while place < len(text):
        size = cuts[len(found) % len(cuts)]
        found.append(text[place : place + size])
        place += size
    return found


def fed(text: str, cuts: list[int]) -> str:
    reader = AnswerText()
    return "".join(reader.feed(piece) for piece in pieces(text, cuts))


@given(TEXT, st.dictionaries(TEXT, VALUE | st.dictionaries(st.just("answer"), TEXT), max_size=3), CUTS, st.booleans())
def test_in_whatever_pieces_arguments_come_the_answer_is_given_out_whole_and_once(
    answer: str, others: dict[str, object], cuts: list[int], escaped: bool
) -> None:
    others.pop("answer", None)
    for arguments in ({**others, "answer": answer}, {"answer": answer, **others}):
        assert fed(json.dumps(arguments, ensure_ascii=escaped, indent=1), cuts) == answer


@given(TEXT, CUTS)
def test_halves_of_a_pair_that_come_in_two_pieces_are_one_character(answer: str, cuts: list[int]) -> None:
    halves = json.dumps({"answer": answer}, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    units = "".join(chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2))
    assert fed(units, cuts) == answer


@given(TEXT, CUTS)
def test_all_that_was_given_out_so_far_is_the_beginning_of_the_answer(answer: str, cuts: list[int]) -> None:
    reader, said = AnswerText(), ""
    for piece in pieces(json.dumps({"answer": answer}), cuts):
        said += reader.feed(piece)
        assert answer.startswith(said)
    assert said == answer


@given(st.text('{}[]":,\\ua0d8answer \n'), CUTS)
def test_what_is_no_json_breaks_nothing(text: str, cuts: list[int]) -> None:
    assert len(fed(text, cuts)) <= len(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"answer": null, "give_up": true}', ""),
        ('{"answer": ["a"]}', ""),
        ('{"result": {"answer": "inner"}}', ""),
        ('{"\\u0061nswer": "spelled"}', "spelled"),
        ('{"answer": "one", "answer": "two"}', "one"),
        ('{"answer": "half of \\ud83d a pair"}', "half of "),
        ('{"answer": "an \\x escape"}', "an "),
        ('{"answer": "cut sho', "cut sho"),
    ],
)
def test_only_the_text_of_the_answer_is_given_out(arguments: str, said: str) -> None:
    assert fed(arguments, [3]) == said
