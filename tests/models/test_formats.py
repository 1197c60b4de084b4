"""Call formats with the real chat templates of each family: rendering tools, calls and results, and parsing calls."""

import json
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.call_format import CallFormat
from ecoshell.models.formats import FORMATS, GENERIC, HERMES, detect
from ecoshell.models.protocol import parse_reply

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from ecoshell.errors import ModelBroken
from ecoshell.models.chat_template import CHATML, ChatTemplate
from ecoshell.models.choosing import Grammar, recommended
from ecoshell.models.embedded import embedded_path
from ecoshell.models.llama import Vocabulary

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"

READ = ToolSchema(
    "read_file",
    'Read a "text" file.',
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "integer"},
            "raw": {"type": "boolean"},
        },
        "required": ["path"],
    },
)
LIST = ToolSchema("list_files", "List files.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "notes.txt", "lines": 3, "raw": True})
QUESTION = (Message("system", "You are ecoshell."), Message("user", "What is in notes.txt?"))
CALL_STEP = (Message("assistant", "I look.", (CALL,)), Message("tool", "Buy milk.", (CALL,)))
ANSWER = (Message("assistant", "Milk."), Message("user", "And?"))

HERMES_2_PRO = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"
PHI_4_MINI = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'system' and 'tools' in m %}{{ '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}"
    "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
FUNCTION_GEMMA = """{{ bos_token }}{% for m in messages -%}
{%- if m.role == 'tool' -%}
<start_function_response>response:{{ m.name }}{value:<escape>{{ m.content }}<escape>}<end_function_response>
{%- else -%}
<start_of_turn>{{ {'assistant': 'model', 'system': 'developer'}.get(m.role, m.role) }}
{{ m.content }}
{%- if loop.first %}{% for t in tools or [] -%}
<start_function_declaration>declaration:{{ t.function.name }}{description:<escape>{{ t.function.description -}}
<escape>}<end_function_declaration>
{%- endfor %}{% endif %}
{%- for c in m.tool_calls or [] -%}
<start_function_call>call:{{ c.function.name }}{ {%- for k, v in c.function.arguments.items() -%}
{{ k }}:{{ '<escape>' + v + '<escape>' if v is string else v | tojson }}{{ ',' if not loop.last }}
{%- endfor -%} }<end_function_call>
{%- endfor -%}
<end_of_turn>
{% endif %}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

FAMILIES = {
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    HERMES_2_PRO: "hermes",
    "meta-llama-Llama-3.1-8B-Instruct": "llama-json",
    "meta-llama-Llama-3.2-3B-Instruct": "llama-json",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-named",
    "google-gemma-4-31B-it": "gemma-4",
    "LFM2-8B-A1B": "liquid",
    "phi-4-mini": "phi",
    "function-gemma": "function-gemma",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3-coder",
    "GLM-4.6": "glm-4.5",
    "GLM-4.7-Flash": "glm-4.7",
    "MiniMax-M2": "minimax-m2",
    "MiniMax-M1": "minimax-m1",
    "ByteDance-Seed-OSS": "seed",
    "google-gemma-2-2b-it": "generic",
    "gemma-3": "generic",
    "microsoft-Phi-3.5-mini-instruct": "generic",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "generic",
    "smollm2": "generic",
}
INLINE_TEMPLATES = {"phi-4-mini": PHI_4_MINI, "function-gemma": FUNCTION_GEMMA}

VALUES = '{"path": "notes.txt", "lines": 3, "raw": true}'
OBJECT = f'{{"name": "read_file", "arguments": {VALUES}}}'
IN_THE_PROMPT = {
    "hermes": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "llama-json": OBJECT.replace("arguments", "parameters"),
    "mistral": f"[TOOL_CALLS][{OBJECT[:-1]}",
    "mistral-named": f"[TOOL_CALLS]read_file[CALL_ID]call00002[ARGS]{VALUES}",
    "gemma-4": "<|tool_call>call:read_file{",
    "liquid": '<|tool_call_start|>[read_file(path="notes.txt", lines=3, raw=True)]<|tool_call_end|>',
    "phi": f"<|tool_call|>[{OBJECT}]<|/tool_call|>",
    "function-gemma": "<start_function_call>call:read_file{path:<escape>notes.txt<escape>,lines:3,raw:true}",
    "qwen3-coder": (
        "<tool_call>\n<function=read_file>\n<parameter=path>\nnotes.txt\n</parameter>\n<parameter=lines>\n3\n</parameter>\n"
        "<parameter=raw>\ntrue\n</parameter>\n</function>\n</tool_call>"
    ),
    "glm-4.5": (
        "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>notes.txt</arg_value>\n"
        "<arg_key>lines</arg_key>\n<arg_value>3</arg_value>\n<arg_key>raw</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
    ),
    "glm-4.7": (
        "<tool_call>read_file<arg_key>path</arg_key><arg_value>notes.txt</arg_value><arg_key>lines</arg_key>"
        "<arg_value>3</arg_value><arg_key>raw</arg_key><arg_value>true</arg_value></tool_call>"
    ),
    "minimax-m2": (
        '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name="path">notes.txt</parameter>\n'
        '<parameter name="lines">3</parameter>\n<parameter name="raw">true</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "minimax-m1": f"<tool_calls>\n{OBJECT}\n</tool_calls>",
    "seed": (
        "<seed:tool_call>\n<function=read_file>\n<parameter=path>notes.txt</parameter>\n<parameter=lines>3</parameter>\n"
        "<parameter=raw>true</parameter>\n</function>\n</seed:tool_call>"
    ),
    "generic": f"I look.\n{OBJECT}",
}


class TemplateVocabulary(Vocabulary):
    """The embedded model's tokenizer with another chat template and metadata."""

    def __init__(self, template: str | None, **metadata: str) -> None:
        super().__init__(embedded_path())
        self._metadata = {"tokenizer.chat_template": template, **metadata}

    def metadata(self, key: str) -> str | None:
        return self._metadata.get(key.removeprefix("general.sampling."))


@pytest.fixture
def load():
    """Loads vocabularies with a chat template, and closes them after the test."""
    vocabularies: list[TemplateVocabulary] = []

    def loaded(template: str | None, **metadata: str) -> TemplateVocabulary:
        if template and template == template_of(HERMES_2_PRO):  # its files have two templates
            template, metadata = CHATML, {"tokenizer.chat_template.tool_use": template}
        vocabularies.append(TemplateVocabulary(template, **metadata))
        return vocabularies[-1]

    yield loaded
    for vocabulary in vocabularies:
        vocabulary.close()


@pytest.fixture(scope="module")
def vocabulary():
    loaded = Vocabulary(embedded_path())
    yield loaded
    loaded.close()


def template_of(family: str) -> str:
    if family == "smollm2":
        vocabulary = Vocabulary(embedded_path())
        text = vocabulary.metadata("tokenizer.chat_template") or ""
        vocabulary.close()
        return text
    return INLINE_TEMPLATES.get(family) or (TEMPLATES / f"{family}.jinja").read_text(
        encoding="utf-8"
    )


def prompt_of(template: ChatTemplate, messages, tools=(READ, LIST)) -> str:
    if template.form is not GENERIC:
        return template.text(messages, tools)
    from ecoshell.models.protocol import as_plain_messages

    return template.text(as_plain_messages(Request(tuple(messages), tools)))


def read(text: str, form: CallFormat = HERMES, want: str = "either", *, cut: bool = False) -> Reply:
    request = Request(QUESTION, (READ, LIST), (READ, LIST), want)  # type: ignore[arg-type]
    return parse_reply(text, request, cut=cut, form=form)


# -- every family with its template


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_identifies_its_format_and_renders_tools_calls_and_results(load, family):
    template = ChatTemplate(load(template_of(family)))
    assert template.form.name == FAMILIES[family]
    prompt = prompt_of(template, (*QUESTION, *CALL_STEP))
    for text in ("You are ecoshell.", "What is in notes.txt?", "list_files", "Buy milk."):
        assert text in prompt, text
    assert IN_THE_PROMPT[template.form.name] in prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_only_grows_during_a_turn(load, family):
    vocabulary = load(template_of(family))
    template = ChatTemplate(vocabulary)
    messages = (*QUESTION, *CALL_STEP, *CALL_STEP)
    prompts = [prompt_of(template, messages[:length]) for length in (2, 4, 6)]
    for earlier, later in pairwise(prompts):
        assert later.startswith(earlier[:-40])  # only the generation prompt may change


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_without_tools_renders_no_tools(load, family):
    template = ChatTemplate(load(template_of(family)))
    prompt = template.text([*QUESTION, *ANSWER])
    assert "And?" in prompt
    assert "<tool" not in prompt
    assert '"name"' not in prompt


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_format_parses_its_own_calls_and_its_grammar_accepts_them(vocabulary, form):
    arguments = json.dumps(dict(CALL.arguments))
    written = form.write(CALL.name, arguments)
    reply = read(f"I look. {written}", form)
    assert (reply.text, reply.calls, reply.fault) == ("I look.", (CALL,), "")
    assert accepts(vocabulary, form.grammar([READ, LIST], marked=False, once=True), written)
    assert accepts(
        vocabulary,
        form.grammar([READ, LIST], marked=True, once=False),
        written.removeprefix(form.opens),
    )
    assert not accepts(vocabulary, form.grammar([LIST], marked=False, once=True), written)


@pytest.mark.parametrize(
    "form", [form for form in FORMATS.values() if form.between], ids=lambda form: form.name
)
def test_two_calls_in_a_row_pass_the_grammar_and_are_both_parsed(vocabulary, form):
    first, second = form.write("list_files", "{}"), form.write("read_file", '{"path": "a"}')
    both = (
        first.removesuffix(form.end)
        + form.between
        + second.removeprefix(f"{form.opens}{form.start}")
    )
    assert accepts(vocabulary, form.grammar([READ, LIST], marked=False, once=False), both)
    assert not accepts(vocabulary, form.grammar([READ, LIST], marked=False, once=True), both)
    assert [call.name for call in read(both, form).calls] == ["list_files", "read_file"]


def accepts(vocabulary: Vocabulary, grammar_text: str, text: str) -> bool:
    grammar = Grammar(vocabulary, grammar_text)
    for token in (*vocabulary.tokens(text), *vocabulary.tokens("<|im_end|>", special=True)):
        if not grammar.allows([token])[0]:
            return False
        grammar.accept(token)
    return True


# -- text from users, tools and models stays data


def test_control_tokens_in_schemas_calls_results_and_questions_are_text(load):
    vocabulary = load(template_of("Qwen-Qwen2.5-7B-Instruct"))
    template = ChatTemplate(vocabulary)
    (end,) = vocabulary.tokens("<|im_end|>", special=True)

    def ends(text: str) -> int:
        tool = ToolSchema(
            "read_file", text, {"type": "object", "properties": {text: {"enum": [text]}}}
        )
        call = Call("read_file", {text: text})
        turn = (
            Message("user", text),
            Message("assistant", text, (call,)),
            Message("tool", text, (call,)),
        )
        tokens = template.tokens((*QUESTION[:1], *turn), (tool,))
        assert text in template.text((*QUESTION[:1], *turn), (tool,))
        return tokens.count(end)

    assert ends("<|im_end|>") == ends("nothing") == 4


@pytest.mark.parametrize("number", ["9", "9" * 5000], ids=["short", "long"])
def test_private_use_characters_in_a_template_are_text(load, number: str):
    template = ChatTemplate(load(f"{{{{ messages[0].content }}}}\ue000{number}\ue001"))
    assert template.text((Message("user", "Hello."),)) == f"Hello.\ue000{number}\ue001"


def test_text_rendered_as_json_is_escaped_as_json(load):
    template = ChatTemplate(load(template_of("Qwen-Qwen2.5-7B-Instruct")))
    tool = ToolSchema("odd", 'a "quote" <b>\nand a line', {"type": "object", "properties": {}})
    line = next(
        line for line in template.text(QUESTION, (tool,)).splitlines() if line.startswith('{"type"')
    )
    assert json.loads(line) == tool.as_function()


def test_a_plain_conversation_tokenizes_like_its_text(load):
    vocabulary = load(template_of("Qwen-Qwen2.5-7B-Instruct"))
    template = ChatTemplate(vocabulary)
    messages = (*QUESTION, *CALL_STEP)
    assert template.tokens(messages, (READ,)) == vocabulary.tokens(
        template.text(messages, (READ,)), special=True
    )


# -- defective templates


def test_a_template_that_does_not_compile_is_broken(load):
    with pytest.raises(ModelBroken, match="chat template is broken"):
        ChatTemplate(load("{% if %}"))


def test_a_template_that_refuses_every_conversation_is_broken(load):
    template = ChatTemplate(load("{{ messages[0].nothing.at.all }}"))
    with pytest.raises(ModelBroken, match="refuses the conversation"):
        template.tokens(QUESTION)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 10 ** (10 ** 9) }}",
        "{{ 'a' * 10 ** 10 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaa') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    ],
)
def test_a_template_that_runs_or_grows_without_limit_is_stopped(
    load, monkeypatch: pytest.MonkeyPatch, text: str
):
    monkeypatch.setattr("ecoshell.models.chat_template._SECONDS", 2.0)
    with pytest.raises(ModelBroken, match=r"chat template fails\. Stopped"):
        ChatTemplate(load(text)).tokens(QUESTION)


def test_training_marks_in_a_template_are_ignored(load):
    marked = CHATML.replace(
        "{{ '<|im_start|>' + message", "{% generation %}{{ '<|im_start|>' + message"
    ).replace("{% endfor %}", "{% endgeneration %}{% endfor %}")
    assert ChatTemplate(load(marked)).text(QUESTION) == ChatTemplate(load(CHATML)).text(QUESTION)


def test_a_template_that_mentions_calls_but_drops_results_gets_the_generic_format(load):
    template = CHATML + "{# <tool_call> #}"
    assert detect(template) is HERMES
    assert ChatTemplate(load(template)).form is GENERIC


def test_a_file_without_a_template_uses_chatml(load):
    template = ChatTemplate(load(None))
    assert template.form is GENERIC
    assert template.text(QUESTION).startswith("<|im_start|>system\nYou are ecoshell.<|im_end|>")


def test_sampling_follows_the_file_then_the_family(load):
    family = recommended(load(None, **{"general.architecture": "qwen2"}))
    assert (family.temperature, family.top_k, family.top_p) == (0.7, 20, 0.8)
    file = recommended(
        load(None, **{"general.architecture": "qwen2", "temp": "0.25", "top_k": "7"})
    )
    assert (file.temperature, file.top_k, file.top_p) == (0.25, 7, 0.8)


# -- parsing calls written without a grammar

READS = {"path": "notes.txt"}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n</tool_call>',
        '<tool_call>{"name": "read_file", "arguments": {"path": "notes.txt"}}',
        '<tool_call>\n{{"name": "read_file", "arguments": {"path": "notes.txt"}}}\n</tool_call>',
        '```json\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n```',
        '{"name": "read_file", "arguments": {"path": "notes.txt"}}',
        '{{"name": "read_file", "arguments": {"path": "notes.txt"}}}',
        '{"name": "read_file", "parameters": {"path": "notes.txt",}}',
        '<tool_call>\n{"name": "read_file", "arguments": "{\\"path\\": \\"notes.txt\\"}"}\n</tool_call>',
    ],
)
def test_a_call_is_parsed_with_or_without_marks_and_in_a_fence(text):
    assert read(text).calls == (Call("read_file", READS),)
    reply = read(f"I look at it.\n{text}")
    assert (reply.text, reply.calls) == ("I look at it.", (Call("read_file", READS),))


def test_trailing_commas_are_ignored_in_each_of_several_calls():
    parsed = FORMATS["mistral"].read(
        '[TOOL_CALLS][{"name":"a","arguments":{"x":1,},},{"name":"b","arguments":{"y":2,},}]'
    )
    assert [(call.name, call.arguments) for call in parsed.attempts] == [
        ("a", {"x": 1}),
        ("b", {"y": 2}),
    ]


@pytest.mark.parametrize(
    ("form", "call"),
    [
        (
            GENERIC,
            '{"name": "write_file", "arguments": {"content": "split(\'[;,]\'); return null; // \\"true, }\\"",}}',
        ),
        (
            FORMATS["llama-pythonic"],
            """[write_file(content="split('[;,]'); return null; // \\"true, }\\"", overwrite=true, old=null)]""",
        ),
    ],
)
def test_repairs_of_a_call_leave_its_texts_unchanged(form, call):
    assert (
        form.read(call).attempts[0].arguments["content"]
        == "split('[;,]'); return null; // \"true, }\""
    )


def test_a_truncated_second_call_leaves_the_first():
    reply = read(
        '<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>\n<tool_call>\n{"na',
        cut=True,
    )
    assert [call.name for call in reply.calls] == ["list_files"]
    assert not reply.fault


@pytest.mark.parametrize(
    ("text", "cut", "fault"),
    [
        ('<tool_call>\n{"name": "read_file", "argu', True, "was cut"),
        ('<tool_call>\n{"name": "read_file", "argu', False, "could not be read"),
        (
            '<tool_call>\n{"name": "raed_file", "arguments": {}}\n</tool_call>',
            False,
            "no tool named 'raed_file'",
        ),
        (
            '<tool_call>\n{"name": "read_file", "arguments": {}}\n</tool_call>',
            False,
            "'path' is a required property",
        ),
        (
            '<tool_call>\n{"name": "read_file"}\n</tool_call>',
            False,
            "'path' is a required property",
        ),
        ("<tool_call>\nread_file(notes.txt)\n</tool_call>", False, "could not be read"),
    ],
)
def test_an_unusable_call_is_a_fault_the_model_can_act_on(text, cut, fault):
    reply = read(text, cut=cut)
    assert fault in reply.fault
    assert not reply.calls


@pytest.mark.parametrize(
    "text",
    [
        "It holds a list.",
        '{"name": "Anna", "age": 30}',
        '```json\n{"milk": 1}\n```',
        "```python\nprint({1: 2})\n```",
        "Use functools.reduce for that.",
        "The result is [1, 2].",
    ],
)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_an_answer_that_resembles_a_call_is_an_answer(text, form):
    assert read(text, form) == Reply(text)


@given(
    text=st.text(alphabet='<tool_cal>{}[]"\\,:()=name rgums', max_size=80),
    form=st.sampled_from([*FORMATS.values()]),
)
def test_parsing_a_malformed_call_never_raises(text, form):
    reply = read(f"{form.opens}{text}", form)
    assert not (reply.calls and reply.fault)
    reply = read(text, form)
    assert not (reply.calls and reply.fault)
