"""Renders messages and tools to tokens with the chat template in a GGUF file's metadata.

Only the template's own text may produce control tokens. All messages and tool schemas are tokenized as plain text, so
that `<|im_end|>` in a web page or a schema ends nothing.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any, ClassVar, cast

from ecoshell.errors import ModelBroken, ToolError
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models.call_format import CallFormat
from ecoshell.models.call_parsing import call_json
from ecoshell.models.elements import argument_texts
from ecoshell.models.formats import GENERIC, REASONING_TAGS, detect
from ecoshell.models.llama import Vocabulary
from ecoshell.models.protocol import as_plain, exchanges, one_call_each
from ecoshell.worker import in_worker

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MARK = re.compile("\ue000([0-9]{1,9})(\ue002?)\ue001")
_HARMLESS = re.compile(r"[\w\s.,:;()'\"/+*=%&!?@#$^~`{}\\-]*", re.ASCII)
"""Texts in tools and calls that contain no control token; templates may read them (`type == "string"`)."""
_SECONDS = 10.0  # limit for one rendering, which takes milliseconds
_FIX = "Use another GGUF of this model."

Render = Callable[[list[dict[str, Any]] | None, list[Any] | None, bool], str]


class ChatTemplate:
    """The chat template of one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Detects the call format of the template; raises ModelBroken."""
        self._vocabulary = vocabulary
        start, end = vocabulary.start_and_end()
        self._start = start
        plain = vocabulary.metadata("tokenizer.chat_template")
        text = vocabulary.metadata("tokenizer.chat_template.tool_use") or plain
        self._render = _compile(text or CHATML, start, end)  # the one for tools, if it has two
        is_single = not plain or plain == text
        self._render_plain = self._render if is_single else _compile(plain or "", start, end)
        self._split = lru_cache(maxsize=256)(self._split_uncached)
        self._folded = self._calls_as_text = False
        """Whether the system text moves into the first user message, and calls into the assistant's text; both are
        determined by trial renderings."""
        self._brief = False  # whether it prints schemas unchanged, so that short ones work
        self.form = self._fitting_format(detect(text or ""))  # `GENERIC` if tools are not rendered
        tags = (tags for tags in REASONING_TAGS if tags[1] in (text or ""))
        self.reasoning_tags = next(tags, None)  # None if the family does not reason
        self._brief = self.form is not GENERIC and self._renders_brief_schemas()
        self.opens_reasoning = False  # whether every prompt ends inside reasoning
        if self.reasoning_tags is not None:
            with suppress(ModelBroken):
                prompt = self.text([Message("user", "Hello.")]).rstrip()
                self.opens_reasoning = prompt.endswith(self.reasoning_tags[0])

    def tokens(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """The tokens of the prompt, up to where the assistant's reply begins.

        Messages may have calls and results only if there are tools.
        """
        segments = self._segments(messages, tools)
        starts_itself = self._start and segments and segments[0][0].startswith(self._start)
        tokens = [] if starts_itself else self._vocabulary.tokens("", special=True, start=True)
        plain, strips = "", False
        for text, data in segments:
            for piece in (text,) if data else self._split(text):
                if isinstance(piece, int):
                    tokens += self._vocabulary.tokens(plain) if plain else []
                    plain, strips = "", self._vocabulary.strips_after(piece)
                    tokens.append(piece)
                else:
                    plain += piece.lstrip() if strips and not plain and not data else piece
        return tokens + (self._vocabulary.tokens(plain) if plain else [])

    def text(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> str:
        return "".join(text for text, _ in self._segments(messages, tools))

    # -- rendering

    def _segments(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> list[tuple[str, bool]]:
        """The prompt in pieces, each with a flag that marks data."""
        plain = [as_plain(message) for message in one_call_each(messages)]
        in_turn = alternating(plain)
        functions = [self._function(tool) for tool in tools]
        attempts = [(plain, ()), (in_turn, ()), (plain, None)]
        if tools:
            attempts = [(messages, tools), (in_turn, tools)]
        for shaped, listed_tools in attempts:
            marks = _Marks()
            try:
                chat = self._chat(shaped, tools, marks)
                listing = None if listed_tools == () else marks.deep(functions)
                rendered = (self._render if listing else self._render_plain)(chat, listing, True)
            except ValueError:  # the template rejects this order of roles, or the lack of tools
                continue
            return marks.segments(rendered)
        raise ModelBroken("The model's chat template refuses the conversation.", fix=_FIX)

    def _chat(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], marks: "_Marks"
    ) -> list[dict[str, Any]]:
        """The messages in the template's form; a call without a result, or the reverse, becomes text."""
        chat: list[dict[str, Any]] = []
        schemas = {tool.name: tool.parameters for tool in tools}
        speakers = [message.speaker for message in messages[:2]]
        if tools and self._folded and speakers == ["system", "user"]:
            messages = [Message("user", f"{messages[0].text}\n\n{messages[1].text}"), *messages[2:]]
        for number, (message, results) in enumerate(exchanges(one_call_each(messages))):
            if not results:
                plain = as_plain(message)
                chat.append({"role": plain.speaker, "content": marks.mark(plain.text)})
                continue
            (call,), (result,), identity = message.calls, results, f"call{number:05d}"
            text = marks.mark(message.text)
            schema = schemas.get(call.name)
            if self._calls_as_text:
                written = self.form.write(call.name, call_json(call), marks.mark, schema)
                content = f"{text}\n{written}" if text else written
                chat.append({"role": "assistant", "content": content})
            else:
                arguments: dict[str, Any] = dict(call.arguments)
                # Templates print other values differently, not always as JSON.
                if self.form.elements:
                    arguments = {**argument_texts(arguments, schema or {})}
                function = {"name": marks.deep(call.name), "arguments": marks.deep(arguments)}
                calls = [{"id": identity, "type": "function", "function": function}]
                chat.append({"role": "assistant", "content": text, "tool_calls": calls})
            answer = {"role": self.form.result_role, "content": marks.mark(result.text)}
            chat.append(answer | {"name": marks.deep(call.name), "tool_call_id": identity})
        if tools and self.form.tools_in_system:
            functions = [replace(tool, brief=False).as_function()["function"] for tool in tools]
            if not chat or chat[0]["role"] != "system":
                chat.insert(0, {"role": "system", "content": ""})
            chat[0]["tools"] = marks.mark(json.dumps(functions, ensure_ascii=False))
        return chat

    # -- capabilities of the template

    def _fitting_format(self, form: CallFormat) -> CallFormat:
        """The format if some shape of the conversation renders completely, else the generic one.

        Shapes whose prompts are append-only during a turn are preferred, because the cache stays valid.
        """
        self.form = form
        fitting: list[tuple[bool, bool]] = []
        for shape in product((False, True), (False, True)) if form is not GENERIC else ():
            self._calls_as_text, self._folded = shape
            verdict = self._trial_rendering()
            if verdict == "grows":
                return form
            if verdict:
                fitting.append(shape)
        self._calls_as_text, self._folded = fitting[0] if fitting else (False, False)
        return form if fitting else GENERIC

    def _trial_rendering(self) -> str:
        """How a sample conversation renders: `grows` (complete and append-only), `whole`, or empty for incomplete."""
        call = Call("probe_tool", {"probe_key": "probe value"})
        tools, question = (_probe_tool(),), _PROBE_QUESTION
        step = (
            Message("assistant", "Probe thought.", (call,)),
            Message("tool", "Probe result.", (call,)),
        )
        more = (Message("assistant", "", (call,)), Message("tool", "Again.", (call,)))
        conversations = (question, (*question, *step), (*question, *step, *more))
        try:
            first, second, third = (self._native(each, tools) for each in conversations)
        except ValueError:
            return ""
        contents = ("Probe system.", "Probe question.", "Probe purpose.", "Probe result.")
        is_whole = all(text in second for text in (*contents, "probe value"))
        if not is_whole or second.count("probe_tool") < 2:
            return ""
        return "grows" if second.startswith(first) and third.startswith(second) else "whole"

    def _native(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
        marks = _Marks()
        functions = marks.deep([self._function(tool) for tool in tools])
        rendered = self._render(self._chat(messages, tools, marks), functions, False)
        return "".join(text for text, _ in marks.segments(rendered))

    def _renders_brief_schemas(self) -> bool:
        """Whether tool schemas in the short form render completely."""
        self._brief = True
        schema = replace(_probe_tool("Probe value"), brief=True)
        try:
            prompt = self._native(_PROBE_QUESTION, (schema,))
        except ValueError:
            return False
        contents = ("probe_tool", "Probe purpose.", "probe_key", "Probe value")
        return all(text in prompt for text in contents)

    def _function(self, tool: ToolSchema) -> dict[str, Any]:
        return (tool if self._brief else replace(tool, brief=False)).as_function()

    # -- tokens

    def _split_uncached(self, text: str) -> tuple[int | str, ...]:
        """Split the template's own text into control tokens and the texts between them."""
        pieces: list[int | str] = []
        place = 0
        for token in self._vocabulary.tokens(text, special=True):
            if not self._vocabulary.controls(token):
                continue
            name = self._vocabulary.piece(token, special=True).decode("utf-8", "replace")
            at = text.find(name, place)
            if at >= 0:
                pieces += [text[place:at], token] if at > place else [token]
                place = at + len(name)
        return (*pieces, text[place:]) if place < len(text) else tuple(pieces)


_PROBE_QUESTION = (Message("system", "Probe system."), Message("user", "Probe question."))


def _probe_tool(description: str = "") -> ToolSchema:
    value = {"type": "string", **({"description": description} if description else {})}
    parameters = {"type": "object", "properties": {"probe_key": value}}
    return ToolSchema("probe_tool", "Probe purpose.", parameters)


@dataclass(eq=False)
class _Marks:
    """Replaces texts by marks while a template renders, so that the template cannot read them."""

    _texts: list[str] = field(default_factory=list[str])

    def mark(self, text: str) -> str:
        """A mark for a text; an empty text stays empty, because templates test for that."""
        if not text:
            return ""
        self._texts.append(text)
        return f"\ue000{len(self._texts) - 1}\ue001"

    def deep(self, value: Any) -> Any:
        """A JSON value with marks instead of texts that might contain control tokens."""
        if isinstance(value, str):
            return value if _HARMLESS.fullmatch(value) else self.mark(value)
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, Any]", value).items()
            return {self.deep(key): self.deep(inner) for key, inner in entries}
        if isinstance(value, list | tuple):
            return [self.deep(inner) for inner in cast("Sequence[Any]", value)]
        return value

    def segments(self, rendered: str) -> list[tuple[str, bool]]:
        """A rendered prompt with the texts put back, in pieces with a flag that marks data."""
        pieces: list[tuple[str, bool]] = []
        place = 0
        for mark in _MARK.finditer(rendered):
            if int(mark[1]) >= len(self._texts):
                continue  # a character of the template itself
            text = self._texts[int(mark[1])]
            text = json.dumps(text, ensure_ascii=False)[1:-1] if mark[2] else text
            pieces += [(rendered[place : mark.start()], False), (text, True)]
            place = mark.end()
        pieces.append((rendered[place:], False))
        return [piece for piece in pieces if piece[0]]


def alternating(messages: Sequence[Message]) -> list[Message]:
    """The messages as strictly alternating user and assistant messages, the system text at the start of the first."""
    shaped: list[Message] = []
    for message in messages:
        speaker = "assistant" if message.speaker == "assistant" else "user"
        if shaped and shaped[-1].speaker == speaker:
            shaped[-1] = Message(speaker, f"{shaped[-1].text}\n\n{message.text}")
        else:
            shaped.append(Message(speaker, message.text))
    return shaped


def _compile(template: str, start: str, end: str) -> Render:
    """Compile a template to a function, which raises ValueError if the template rejects or fails on a conversation.

    Templates are untrusted programs: they run in the worker process, within limits. Raises ModelBroken for a template
    that does not compile; the function raises it if rendering takes too much time or memory.
    """
    # A fixed date while the model is loaded, because another date would change every prompt.
    began = datetime.now()
    program = (template, start, end, began)

    def render(messages: list[dict[str, Any]] | None, tools: list[Any] | None, asks: bool) -> str:
        try:
            arguments = (program, messages, tools, asks)
            rendered, refusal = in_worker(_rendered, *arguments, seconds=_SECONDS)
        except ToolError as error:
            raise ModelBroken(f"The model's chat template fails. {error}", fix=_FIX) from error
        if refusal:
            raise ValueError(refusal)
        return rendered

    try:
        render(None, None, False)
    except ValueError as broken:
        raise ModelBroken(f"The model's chat template is broken: {broken}.", fix=_FIX) from broken
    return render


# -- in the worker

_Program = tuple[str, str, str, datetime]


def _rendered(
    program: _Program, messages: list[dict[str, Any]] | None, tools: list[Any] | None, asks: bool
) -> tuple[str, str]:
    """The prompt, and why the template rejects the conversation; without messages only the template is compiled."""
    try:
        template = _program(program)
        if messages is None:
            return "", ""
        return str(template.render(messages=messages, tools=tools, add_generation_prompt=asks)), ""
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - templates may raise anything
        return "", str(error) or type(error).__name__


@lru_cache(maxsize=8)
def _program(program: _Program) -> Any:
    template, start, end, began = program
    sandbox: Any = import_module("jinja2.sandbox").ImmutableSandboxedEnvironment
    extension: Any = import_module("jinja2.ext").Extension

    class Ignoring(extension):  # parses `{% generation %}` without any effect
        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            parser.stream.skip(1)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    extensions = [Ignoring, "jinja2.ext.loopcontrols"]
    environment = sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson

    def refuse(message: str) -> None:
        raise ValueError(message)

    environment.globals |= {
        "bos_token": start,
        "eos_token": end,
        "raise_exception": refuse,
        "strftime_now": began.strftime,
    }
    return environment.from_string(template)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any
) -> str:
    """JSON as templates print it, with the marks of texts that need escaping."""
    printed = json.dumps(value, ensure_ascii=False, indent=indent, **options)
    return _MARK.sub("\ue000\\1\ue002\ue001", printed)
