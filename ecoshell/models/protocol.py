"""Calls as text, for models without native tool calls, and the checks of all calls.

Such models read the tools in the system message; calls and results are text. Parsing never raises: an unusable call
becomes a `Reply.fault`, worded for the model. Providers reject tool names with characters other than letters, digits,
`_` and `-`; such names are replaced by safe ones, which `resolved_name` maps back.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha1
from typing import Any, cast

from ecoshell.messages import Call, Message, ToolSchema, Usage
from ecoshell.models import Reply, Request
from ecoshell.models.call_format import CallFormat
from ecoshell.models.call_parsing import Attempt, call_json, refuse_constant
from ecoshell.models.formats import GENERIC

PROTOCOL = """You act by calling tools. To call one, write {"name": <name of the tool>, "arguments": <JSON object>} \
and nothing after it. Its result comes back in the next message.
When no tool is needed, answer in plain text."""
"""The same for every kind of request, so that all prompts share a prefix; the last message says what is wanted."""
_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_PREFIX = re.compile(
    r"^(?:functions?|tools?|default_api|multi_tool_use)\s*[.:/]\s*", re.IGNORECASE
)

_CALL_SHAPE = 'A call needs "name" (a text) and "arguments" (an object).'
CUT = "The reply was cut before the call was complete; write a shorter one."
_MAX_DEPTH = 64  # maximum nesting depth of arguments, because readers of events recurse into them


# -- calls as text


def as_plain_messages(request: Request) -> list[Message]:
    """The messages as system, user and assistant texts, with the tools and the protocol in the system message."""
    messages = one_call_each(request.messages)
    opening = ""
    if messages and messages[0].speaker == "system":
        opening = messages.pop(0).text
    if request.tools:
        schemas = "\n".join(schema.as_text() for schema in request.tools)
        protocol = f"{PROTOCOL}\n\nTools:\n{schemas}"
        opening = f"{opening}\n\n{protocol}" if opening else protocol
    plain = [Message("system", opening)] if opening else []
    return plain + [as_plain(message) for message in messages]


def one_call_each(messages: Iterable[Message]) -> list[Message]:
    """The messages with each call in its own assistant message, directly before its result.

    Text protocols and chat templates of small models require this order.
    """
    split: list[Message] = []
    for message, results in exchanges(tuple(messages)):
        split += [message] if not results else ()
        for number, result in enumerate(results):
            text, call = "" if number else message.text, message.calls[number]
            split += [Message("assistant", text, (call,)), result]
    return split


def as_plain(message: Message) -> Message:
    """The message with its calls as part of the text; a tool result becomes a user message."""
    if message.speaker == "assistant":
        written = [GENERIC.write(call.name, call_json(call)) for call in message.calls]
        return Message("assistant", "\n".join(filter(None, (message.text, *written))))
    if message.speaker == "tool":
        name = message.call.name if message.call else "the tool"
        return Message("user", f"Result of {name}:\n{message.text}", images=message.images)
    return Message(message.speaker, message.text, images=message.images)


def call_text(call: Call, thought: str = "") -> str:
    """A call as a model writes it, after its thought."""
    written = GENERIC.write(call.name, call_json(call))
    return f"{thought}\n{written}" if thought else written


def parse_reply(
    text: str,
    request: Request,
    usage: Usage | None = None,
    cut: bool = False,
    form: CallFormat = GENERIC,
) -> Reply:
    """Parse a plain text as a reply; never raises.

    Code fences, prose around calls, missing closing marks and trailing commas are tolerated. Names and arguments must
    match one of `request.callable_now`.
    """
    if request.want == "text":
        return Reply(text.strip(), usage=usage, cut=cut)
    parsed = form.read(text, request.callable_now)
    calls, fault, attempt = usable_calls(parsed.attempts, request.callable_now)
    if calls or fault:
        return Reply(parsed.text, calls, usage, fault, cut, attempt)
    if not parsed.broken and request.want == "either":
        return Reply(parsed.text, usage=usage, cut=cut)
    shape = "the call in your own format"
    if form.syntax == "json":
        shape = form.write("<name of the tool>", "<JSON object>")
    if cut:
        fault = CUT
    elif parsed.broken:
        fault = f"The call could not be read. Write {shape} and nothing after it."
    else:
        fault = f"A call was wanted. Write {shape}."
    return Reply(parsed.text, usage=usage, cut=cut, fault=fault)


def usable_calls(
    attempts: Iterable[Attempt], schemas: Sequence[ToolSchema]
) -> tuple[tuple[Call, ...], str, Call | None]:
    """The calls before the first unusable one; without any, its fault and its readable part."""
    calls: list[Call] = []
    for attempt in attempts:
        call = read_call(attempt, schemas)
        if call.fault:
            attempted = replace(call, fault="") if call.name else None
            return tuple(calls), "" if calls else call.fault, None if calls else attempted
        calls.append(call)
    return tuple(calls), "", None


def read_call(attempt: Attempt, schemas: Sequence[ToolSchema]) -> Call:
    """The call of an attempt, with a fault if it cannot run. Arguments may be an object or its JSON."""
    name, arguments = attempt.name, attempt.arguments
    if not isinstance(name, str):
        return Call("", fault=_CALL_SHAPE)
    name = resolved_name(name, schemas)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            fault = f"The arguments of {name} are not valid JSON ({error}). Write them again as one JSON object."
            return Call(name, fault=fault)
        if not isinstance(arguments, dict):
            return Call(name, fault=f"The arguments of {name} must be one JSON object.")
    if not isinstance(arguments, dict):
        return Call("", fault=_CALL_SHAPE)
    call = Call(name, cast("dict[str, Any]", arguments))
    call = replace(call, fault=call_fault(call, schemas))
    return Call(name, fault=call.fault) if too_deep(call.arguments) else call


def too_deep(value: object, levels: int = _MAX_DEPTH) -> bool:
    """Whether a JSON value is nested deeper than arguments may be."""
    if isinstance(value, Mapping):
        value = [*cast("Mapping[str, object]", value).values()]
    if not isinstance(value, list):
        return False
    return levels == 0 or any(too_deep(inner, levels - 1) for inner in cast("list[object]", value))


def without_reasoning(text: str) -> tuple[str, str]:
    """Split a text into the reasoning in `<think>` tags at its start and the rest."""
    start = text.lstrip()
    if not start.startswith("<think>"):
        return "", text
    reasoning, _, reply = start.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), reply.lstrip()


def call_fault(call: Call, tool_schemas: Sequence[ToolSchema]) -> str:
    """Why a call is invalid, worded for the model; empty if it matches one of the tools."""
    tool_schema = next((tool for tool in tool_schemas if tool.name == call.name), None)
    if tool_schema is None:
        names = ", ".join(tool.name for tool in tool_schemas)
        return f"There is no tool named {call.name!r}. Available: {names or 'none'}."
    if too_deep(call.arguments):
        return f"The arguments of {call.name} are nested more than {_MAX_DEPTH} levels deep."
    try:
        json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return f"The arguments of {call.name} contain half of a surrogate pair, which is not valid text."
    except ValueError:
        return f"The arguments of {call.name} contain a number that JSON cannot represent, or one that is too large."
    fault = schema_fault(dict(call.arguments), tool_schema.parameters)
    return fault and f"The arguments of {call.name} do not fit its parameters: {fault}."


def schema_fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Where and how a JSON value violates a schema; empty if it fits, or if the schema is unusable."""
    from jsonschema import exceptions
    from jsonschema.validators import validator_for  # pyright: ignore[reportUnknownVariableType]
    from referencing.exceptions import Unresolvable

    best_match: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    schema = dict(schema)
    kind: Any = validator_for(schema)
    try:
        kind.check_schema(schema)
        error = best_match(kind(schema).iter_errors(value))
    except (exceptions.SchemaError, Unresolvable, re.error, OverflowError):  # accepts everything
        return ""
    if error is None:
        return ""
    where = ".".join(map(str, error.absolute_path))
    message = str(error.message)
    message = message if len(message) <= 300 else message[:299] + "…"
    return f"{where}: {message}" if where else message


def safe_name(name: str) -> str:
    """The name, or a unique replacement if providers reject it."""
    if _ALLOWED.fullmatch(name):
        return name
    digest = sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{_NOT_ALLOWED.sub('_', name)[:55]}_{digest[:8]}"


def resolved_name(name: str, schemas: Iterable[ToolSchema]) -> str:
    """The tool a model means by this name; the name itself if no tool, or more than one, matches.

    Models return safe names, and deviate in case, white space, `-` for `_`, and prefixes such as `functions.`.
    """
    names = [schema.name for schema in schemas]
    if name in names:
        return name
    if exact := [candidate for candidate in names if safe_name(candidate) == name]:
        return exact[0]
    matches = {candidate for candidate in names if _folded_name(candidate) == _folded_name(name)}
    return matches.pop() if len(matches) == 1 else name


def _folded_name(name: str) -> str:
    return _NAME_PREFIX.sub("", name.strip()).strip().replace("-", "_").casefold()


def exchanges(messages: Sequence[Message]) -> Iterator[tuple[Message, tuple[Message, ...]]]:
    """Each message; an assistant message whose calls all have results comes with them, in the order of the calls."""
    index = 0
    while index < len(messages):
        message = messages[index]
        number = len(message.calls) if message.speaker == "assistant" else 0
        following = messages[index + 1 : index + 1 + number]
        answered = len(following) == len(message.calls) and all(
            result.speaker == "tool" and (result.call or call).name == call.name
            for call, result in zip(message.calls, following, strict=True)
        )
        results = tuple(following) if answered else ()
        yield message, results
        index += 1 + len(results)
