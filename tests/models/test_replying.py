"""Parsing a streamed reply: the text shown, the grammar in force and the final reply."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ecoshell.agent.view import trimmed_message
from ecoshell.catalog import FINISH_SCHEMA
from ecoshell.messages import Call, Message, Observation, ToolSchema, Usage
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.answer_text import AnswerText
from ecoshell.models.quoting import QUOTE, Quoting

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from ecoshell.models.call_format import CallFormat
from ecoshell.models.choosing import Chooser, Grammar, Sampling
from ecoshell.models.embedded import embedded_path
from ecoshell.models.engine import EngineOptions
from ecoshell.models.formats import FORMATS, GENERIC, HERMES
from ecoshell.models.llama import Vocabulary
from ecoshell.models.local import LocalModel
from ecoshell.models.replying import ReplyForm, ReplyReader

READ = ToolSchema(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
QUESTION = (Message("user", "What is in notes.txt?"),)
CALL = '{"name": "read_file", "arguments": {"path": "notes.txt"}}'
TAGS = ("<think>", "</think>")
ELEMENT_FORMATS = [form for form in FORMATS.values() if form.elements]


def request_after(*results: str) -> Request:
    """A request whose history holds these tool results."""
    return Request(
        (*QUESTION, *(Message("tool", result) for result in results), Message("user", "And?"))
    )


def quoted(request: Request, text: str) -> str:
    """A text that arrives in one piece, with the placeholder replaced."""
    quoting = Quoting(request)
    return quoting.feed(text) + quoting.end()


@given(
    st.lists(st.sampled_from(["[", "[res", "ult]", QUOTE, "a", " ", "]"]), max_size=9),
    st.text(max_size=9),
)
def test_a_split_placeholder_becomes_the_last_result_once(pieces, result):
    request = request_after("first", result)
    quoting, text = Quoting(request), "".join(pieces)
    output = "".join(map(quoting.feed, pieces)) + quoting.end()
    assert output == quoted(request, text)
    if "\n" not in result.strip():
        assert output == text.replace(QUOTE, result.strip() or QUOTE, 1)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("a.csv says:\n[result]", "a.csv says:\n```\nx,y\n1,2\n```"),
        ("It prints: [result]. Right?", "It prints: \n```\nx,y\n1,2\n```\n. Right?"),
        ("[result]\nThat is all.", "```\nx,y\n1,2\n```\nThat is all."),
    ],
)
def test_a_result_of_several_lines_becomes_a_code_block(text, output):
    request = request_after("x,y\n1,2\n")
    quoting = Quoting(request)
    assert quoted(request, text) == output
    assert "".join(map(quoting.feed, text)) + quoting.end() == output
    assert quoted(request_after("a\n```\nb"), "[result]") == "````\na\n```\nb\n````"


def test_a_note_below_a_result_is_not_quoted():
    observation = Observation("12", note="Not to be used any more: count_text (budget).")
    message = observation.message(Call("calculate"))
    assert message.text.endswith("(budget).")
    request = Request((*QUESTION, message))
    assert quoted(request, "15% * 80 = [result]") == "15% * 80 = 12"
    cut = trimmed_message(replace(message, text=f"{'1' * 900}{message.note}"), 400)
    assert cut.text.endswith(message.note)
    assert "(budget)" not in quoted(Request((*QUESTION, cut)), "[result]")


@given(st.text(max_size=20), st.text(max_size=5), st.text(max_size=20))
def test_a_shortened_text_expands_to_the_original(prefix, result, suffix):
    assume(QUOTE not in prefix + result + suffix and "\n" not in result.strip())
    text, quoting = f"{prefix}{result.strip()}{suffix}", Quoting(request_after(result))
    assert quoted(request_after(result), quoting.shortened(text)) == text
    assert (QUOTE in quoting.shortened(text)) is bool(result.strip())
    assert Quoting(Request(QUESTION)).shortened(text) == text


REASONING_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' }}{# </think> #}"
)


class RecordingChooser(Chooser):
    """A chooser that records the text after which each grammar took effect."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, Sampling())
        self.prefixes: list[str] = []

    def constrain(self, grammar: str, start: str = "") -> None:
        super().constrain(grammar, start)
        self.prefixes.append(start)

    @property
    def is_constrained(self) -> bool:
        return self._grammar is not None


@pytest.fixture(scope="module")
def vocabulary():
    loaded = Vocabulary(embedded_path())
    yield loaded
    loaded.close()


@pytest.fixture
def chooser(vocabulary):
    return RecordingChooser(vocabulary)


def request(want: str = "either", **more) -> Request:
    return Request(QUESTION, (READ,), (READ,), want, **more)  # type: ignore[arg-type]


def read(text: str, chooser: RecordingChooser, form: ReplyForm | None = None, *, size: int = 1):
    """Read a text in pieces of this size; returns the text shown, the reasoning and the reply."""
    reader = ReplyReader(request(), form or ReplyForm(HERMES))
    pieces: list[Delta] = []
    for place in range(0, len(text), size):
        pieces += reader.feed(text[place : place + size], chooser)
        if reader.over:
            break
    pieces += reader.finish()
    visible = "".join(piece.text for piece in pieces if not piece.reasoning)
    reasoning = "".join(piece.text for piece in pieces if piece.reasoning)
    return visible, reasoning, reader.reply(Usage(), cut=False)


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
def test_an_answer_is_shown_completely_and_unconstrained(chooser, text, size):
    visible, _, reply = read(text, chooser, size=size)
    assert visible == reply.text == text
    assert not chooser.is_constrained
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
def test_no_byte_of_a_call_is_shown_and_its_grammar_applies_once_it_starts(
    chooser, lead, written, size
):
    visible, _, reply = read(lead + written, chooser, size=size)
    assert visible == lead
    assert reply.calls == (Call("read_file", {"path": "notes.txt"}),)
    assert reply.text == lead.strip()
    assert chooser.prefixes


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_call_in_any_format_is_not_shown(chooser, form):
    written = form.write("read_file", '{"path": "notes.txt"}')
    visible, _, reply = read(f"I look.\n{written}", chooser, ReplyForm(form))
    assert visible == "I look.\n"
    assert reply.calls == (Call("read_file", {"path": "notes.txt"}),)


@pytest.mark.slow
def test_after_the_marker_only_a_callable_tool_can_be_named(vocabulary, chooser):
    reader = ReplyReader(request(), ReplyForm(HERMES))
    reader.feed("<tool_call>\n", chooser)
    logits = _certain(vocabulary, '{"')
    assert vocabulary.piece(chooser.choose(logits)).startswith(b'{"')
    written = b'{"'
    for _ in range(80):
        token = chooser.choose(_certain(vocabulary, "zebra"))
        written += vocabulary.piece(token)
    assert b"".join(written.split()).startswith(b'{"name":"read_file","arguments":{"path":"')


def test_a_call_of_an_unknown_tool_ends_the_reply_at_its_name(chooser):
    reader = ReplyReader(request(), ReplyForm(HERMES))
    deltas = reader.feed(
        'I rename it. {"name": "rename", "arguments": {"from": "a", "to": "b"', chooser
    )
    reply = reader.reply(Usage(), cut=False)
    assert "".join(delta.text for delta in deltas).strip() == reply.text == "I rename it."
    assert reader.over
    assert not reader.refused
    assert "no tool named 'rename'" in reply.fault
    assert reply.attempt == Call("rename")


@pytest.mark.parametrize("space", ["", " ", "\n    "])
def test_a_call_may_span_several_lines(vocabulary, space):
    inner = f'{{{space}"name": "read_file",{space}"arguments": {{{space}"path": "notes.txt"{space}}}{space}}}'
    grammar = Grammar(vocabulary, HERMES.grammar((READ,), marked=True, once=True))
    for token in vocabulary.tokens(f"\n{inner}\n</tool_call>"):
        assert grammar.allows([token]) == [True]
        grammar.accept(token)


def _certain(vocabulary: Vocabulary, text: str):
    """Logits of a model that is certain of the first token of a text."""
    import numpy as np

    logits = np.zeros(vocabulary.size, dtype=np.float32)
    logits[vocabulary.tokens(text)[0]] = 9
    return logits


def test_invalid_text_after_a_marker_lifts_the_grammar(chooser):
    visible, _, reply = read("<tool_call>read_file please", chooser, size=500)
    assert visible == ""
    assert "could not be read" in reply.fault
    assert not chooser.is_constrained


def test_a_complete_call_of_an_unknown_tool_is_hidden_and_a_fault(chooser):
    visible, _, reply = read('{"name": "fetch_it", "arguments": {}}', chooser)
    assert visible == ""
    assert "no tool named 'fetch_it'" in reply.fault


def test_a_call_ends_the_reply_when_text_is_wanted(chooser):
    reader = ReplyReader(request("text"), ReplyForm(HERMES))
    visible = [
        delta.text
        for char in f"Milk. {CALL}"
        if not reader.over
        for delta in reader.feed(char, chooser)
    ]
    assert "".join(visible) == "Milk. "
    assert reader.over
    assert not reader.refused
    assert reader.reply(Usage(), cut=False) == Reply("Milk.", usage=Usage())


@pytest.mark.parametrize("size", [1, 4, 500])
def test_reasoning_is_shown_separately_from_the_answer(chooser, size):
    form = ReplyForm(HERMES, TAGS)
    text = f"<think>\nA < b, or {CALL}?\n</think>\n\nIt says milk."
    visible, reasoning, reply = read(text, chooser, form, size=size)
    assert visible.strip() == reply.text == "It says milk."
    assert reasoning.strip() == reply.reasoning == f"A < b, or {CALL}?"
    assert not reply.calls


def test_reasoning_opened_by_the_prompt_precedes_a_required_call(chooser):
    form = ReplyForm(HERMES, TAGS, inside=True)
    reader = ReplyReader(request("call"), form)
    reader.feed("Which one?\n</think>\n\n", chooser)
    assert chooser.is_constrained
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
def test_the_answer_in_a_call_of_finish_is_shown_while_it_is_written(form, text, size):
    visible, reply = read_remote(text % ARGUMENTS, form, size)
    assert visible == ("I have it.", ANSWER)
    assert reply.call == Call("finish", json.loads(ARGUMENTS))


@pytest.mark.parametrize("size", [1, 4, 500])
@pytest.mark.parametrize("form", ELEMENT_FORMATS, ids=lambda form: form.name)
def test_an_answer_in_an_xml_element_is_shown_while_it_is_written(form, size):
    call = form.write("finish", ARGUMENTS, parameters=FINISH_SCHEMA.parameters)
    visible, reply = read_remote(call, form, size)
    assert visible == ("I have it.", ANSWER)
    assert reply.call == Call("finish", json.loads(ARGUMENTS))
    assert read_remote(f'{{"name": "finish", "arguments": {ARGUMENTS}}}', form, size)[0] == visible


@pytest.mark.parametrize("form", ELEMENT_FORMATS, ids=lambda form: form.name)
def test_text_before_an_xml_call_is_shown_and_the_grammar_applies_to_the_call(chooser, form):
    call = form.write("read_file", '{"path": "notes.txt"}')
    visible, _, reply = read(f"A < b. {call}", chooser, ReplyForm(form))
    assert (visible.strip(), reply.calls) == ("A < b.", (Call("read_file", {"path": "notes.txt"}),))
    assert chooser.is_constrained


def test_a_call_without_its_opening_marker_is_recognised_by_the_function_tag(chooser):
    call = "<function=read_file>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>"
    visible, _, reply = read(f"I look.\n{call}", chooser, ReplyForm(FORMATS["qwen3-coder"]))
    assert (visible.strip(), reply.calls) == (
        "I look.",
        (Call("read_file", {"path": "notes.txt"}),),
    )
    assert chooser.is_constrained


@pytest.mark.parametrize("size", [1, 500])
def test_an_argument_called_answer_of_another_tool_is_not_shown(size):
    text = '<tool_call>\n{"name": "read_file", "arguments": {"answer": "no"}}\n</tool_call>'
    assert read_remote(text, HERMES, size)[0] == ("I have it.", "")


def read_remote(text: str, form: CallFormat, size: int) -> tuple[tuple[str, str], Reply]:
    """Read a call by a remote model; returns (the text before it, the answer in it) and the reply."""
    tools, text = (READ, FINISH_SCHEMA), f"I have it.\n{text}"
    reader = ReplyReader(Request(QUESTION, tools, tools), ReplyForm(form, TAGS, is_remote=True))
    deltas = [
        delta for at in range(0, len(text), size) for delta in reader.feed(text[at : at + size])
    ]
    deltas += reader.finish()
    thought, answer = (
        "".join(d.text for d in deltas if d.answer is in_answer) for in_answer in (False, True)
    )
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
def test_the_text_shown_does_not_depend_on_how_a_reply_is_split(parts, sizes, form):
    text, shape = "".join(parts), ReplyForm(form, TAGS, is_remote=True)
    assume("````" not in text)  # which of four backticks form the fence depends on the split
    complete, split = ReplyReader(request(), shape), ReplyReader(request(), shape)
    expected = [*complete.feed(text), *complete.finish()]
    deltas = [delta for piece in split_text(text, sizes) for delta in split.feed(piece)]
    deltas += split.finish()
    for reasoning in (False, True):
        assert shown_text(deltas, reasoning) == shown_text(expected, reasoning)
    assert complete.reply(Usage(), cut=False) == split.reply(Usage(), cut=False)


def shown_text(deltas: list[Delta], reasoning: bool) -> str:
    return "".join(delta.text for delta in deltas if delta.reasoning is reasoning).strip()


def test_an_answer_that_starts_like_a_tag_is_shown_at_the_end(chooser):
    assert read("<thi", chooser, ReplyForm(GENERIC, TAGS))[0] == "<thi"


# -- with a model


@pytest.fixture(scope="module")
def reasoner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with a template that opens reasoning in every prompt."""
    folder = tmp_path_factory.mktemp("reasoner")
    template, path = folder / "template.jinja", folder / "reasoner.gguf"
    template.write_text(REASONING_TEMPLATE)
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--force"]
    command += ["--chat-template-file", str(template), str(embedded_path()), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return path


ENDLESS = ("What is a river?", "Explain how bread is made.", "What do you think about music?")


async def test_endless_reasoning_is_closed_at_a_bound_and_an_answer_follows(reasoner):
    """Which of the questions leads to long reasoning depends on the processor's rounding."""
    model = LocalModel(reasoner, options=EngineOptions(context=1024))
    try:
        for question in ENDLESS:
            text_request = Request((Message("user", question),), want="text", max_tokens=100)
            pieces = [piece async for piece in model.stream(text_request)]
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


async def test_an_answer_under_a_grammar_has_no_reasoning(reasoner):
    model = LocalModel(reasoner, options=EngineOptions(context=1024))
    try:
        yes_or_no = Request(
            (Message("user", "Is milk white?"),),
            want="text",
            max_tokens=8,
            grammar='root ::= "yes" | "no"',
        )
        replies = [piece async for piece in model.stream(yes_or_no) if isinstance(piece, Reply)]
    finally:
        await model.aclose()
    assert replies[0].text in {"yes", "no"}
    assert not replies[0].reasoning


async def test_a_loaded_model_never_starts_a_call_when_text_is_wanted():
    model = LocalModel(embedded_path(), options=EngineOptions(context=1024))
    try:
        shots = (Message("user", "Read a."), Message("assistant", CALL)) * 6
        text_request = Request(
            (*shots, Message("user", "Read a.")), (READ,), (READ,), "text", max_tokens=30
        )
        pieces = [piece async for piece in model.stream(text_request)]
    finally:
        await model.aclose()
    assert isinstance(pieces[-1], Reply)
    assert pieces[-1].text
    assert '"name": "read_file", "arguments"' not in pieces[-1].text
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.output <= 30
    assert pieces[-1].usage.input == model.size(text_request).count


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3)
)
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def split_text(text: str, sizes: list[int]) -> list[str]:
    pieces, place = list[str](), 0
    while place < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[place : place + size])
        place += size
    return pieces


def answer_in(arguments: str, cuts: list[int]) -> str:
    reader = AnswerText()
    return "".join(reader.feed(piece) for piece in split_text(arguments, cuts))


@given(
    TEXT,
    st.dictionaries(TEXT, VALUE | st.dictionaries(st.just("answer"), TEXT), max_size=3),
    CUTS,
    st.booleans(),
)
def test_an_answer_is_complete_however_its_arguments_are_split(
    answer: str, siblings: dict[str, object], cuts: list[int], escaped: bool
) -> None:
    siblings.pop("answer", None)
    for arguments in ({**siblings, "answer": answer}, {"answer": answer, **siblings}):
        assert answer_in(json.dumps(arguments, ensure_ascii=escaped, indent=1), cuts) == answer


@given(TEXT, CUTS)
def test_a_surrogate_pair_split_over_two_pieces_is_one_character(
    answer: str, cuts: list[int]
) -> None:
    halves = json.dumps({"answer": answer}, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    units = "".join(
        chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2)
    )
    assert answer_in(units, cuts) == answer


@given(TEXT, CUTS)
def test_the_text_shown_so_far_is_a_prefix_of_the_answer(answer: str, cuts: list[int]) -> None:
    reader, visible = AnswerText(), ""
    for piece in split_text(json.dumps({"answer": answer}), cuts):
        visible += reader.feed(piece)
        assert answer.startswith(visible)
    assert visible == answer


@given(st.text('{}[]":,\\ua0d8answer \n'), CUTS)
def test_invalid_json_raises_nothing(text: str, cuts: list[int]) -> None:
    assert len(answer_in(text, cuts)) <= len(text)


@pytest.mark.parametrize(
    ("arguments", "answer"),
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
def test_only_the_text_of_the_answer_is_shown(arguments: str, answer: str) -> None:
    assert answer_in(arguments, [3]) == answer
