"""Calls as JSON in plain text, for models without tool calls of their own.

The rendering is append-only: adding messages to a request never changes a byte of what the earlier ones became, so a
cached prefix stays valid. Parsing never raises: what cannot be used becomes `Reply.fault`, in words for the model.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from ecoshell.messages import Call, Message, ToolDocument, Usage
from ecoshell.models.base import Reply, Request

PROTOCOL = """You act by calling tools. To call one, write one JSON object and nothing after it:
{"thought": "why", "call": {"name": "tool name", "arguments": {}}}
Its result comes back in the next message."""

_SHAPE = '{"thought": "…", "call": {"name": "…", "arguments": {…}}}'
_MUST = "Every reply must be such an object."
_MAY = "When no tool is needed, answer in plain text."
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_FENCE = re.compile(r"```[a-zA-Z]*")
_MAX_STARTS = 40
"""Opening braces tried before a text counts as having no JSON object: keeps garbage from costing quadratic time."""


def as_plain_messages(request: Request) -> list[Message]:
    """The request's messages as system, user and assistant texts alone, the tools and the protocol in the first one."""
    messages = list(request.messages)
    opening = ""
    if messages and messages[0].speaker == "system":
        opening = messages.pop(0).text
    if request.tools:
        opening = f"{opening}\n\n{_tools_text(request)}" if opening else _tools_text(request)
    plain = [Message("system", opening)] if opening else []
    return plain + [_as_plain(message) for message in messages]


def call_text(call: Call, thought: str = "") -> str:
    """A call as the JSON object a model writes."""
    inner = {"name": call.name, "arguments": dict(call.arguments)}
    record = {"thought": thought, "call": inner} if thought else {"call": inner}
    return json.dumps(record, ensure_ascii=False)


def parse_reply(text: str, request: Request, usage: Usage | None = None, cut: bool = False) -> Reply:
    """The reply a plain text stands for; never raises.

    Code fences, prose around the object, a bare `{"name", "arguments"}` and trailing commas are forgiven; the name and
    the arguments are not: they must match one of `request.callable_now`.
    """
    said = text.strip()
    if request.want == "text":
        return Reply(said, usage=usage, cut=cut)
    found = _find_call(text)
    if found is None:
        return Reply(said, usage=usage, cut=cut, fault=_why_no_call(text, request, cut))
    thought, record = found
    name, arguments = record.get("name"), record.get("arguments", record.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _decode(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        fault = 'A call needs "name" (a text) and "arguments" (an object).'
        return Reply(thought, usage=usage, cut=cut, fault=fault)
    call = Call(name, cast("dict[str, Any]", arguments))
    fault = call_fault(call, request.callable_now)
    if fault:
        return Reply(thought, usage=usage, cut=cut, fault=fault, attempt=call)
    return Reply(thought, (call,), usage, cut=cut)


def call_fault(call: Call, documents: Sequence[ToolDocument]) -> str:
    """What is wrong with a call, in words the model can act on; empty when it fits one of the documents."""
    document = next((known for known in documents if known.name == call.name), None)
    if document is None:
        names = ", ".join(known.name for known in documents)
        return f"There is no tool named {call.name!r} to call now. Callable now: {names or 'none'}."
    try:
        json.dumps(dict(call.arguments), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return f"The arguments of {call.name} hold half of a surrogate pair, which is no text."
    error = _schema_error(call.arguments, document.parameters)
    return f"The arguments of {call.name} do not fit its parameters: {error}." if error else ""


def _tools_text(request: Request) -> str:
    documents = "\n".join(document.as_text() for document in request.tools)
    return f"{PROTOCOL}\n{_MUST if request.want == 'call' else _MAY}\n\nTools:\n{documents}"


def _as_plain(message: Message) -> Message:
    if message.speaker == "assistant" and message.call is not None:
        return Message("assistant", call_text(message.call, message.text))
    if message.speaker == "tool":
        name = message.call.name if message.call else "the tool"
        return Message("user", f"Result of {name}:\n{message.text}")
    return Message(message.speaker, message.text)


def _find_call(text: str) -> tuple[str, Mapping[str, Any]] | None:
    """The thought and the call record in a text, or None."""
    for start, record in _objects(text):
        lead = _FENCE.sub("", text[:start]).strip()
        thought = record.get("thought")
        thought = thought if isinstance(thought, str) else lead
        call = record.get("call")
        if isinstance(call, dict):
            return thought, cast("Mapping[str, Any]", call)
        if "name" in record and ("arguments" in record or "parameters" in record):
            return thought, record
    return None


def _objects(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every outermost JSON object of a text with its place; at most `_MAX_STARTS` places are tried."""
    place = 0
    for _ in range(_MAX_STARTS):
        place = text.find("{", place)
        if place < 0:
            return
        decoded = _decode_from(text, place)
        if decoded is None:
            place += 1
            continue
        record, end = decoded
        yield place, record
        place = end


def _decode_from(text: str, place: int) -> tuple[Mapping[str, Any], int] | None:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    for candidate in (text[place:], _TRAILING_COMMA.sub(r"\1", text[place:])):
        try:
            value, length = decoder.raw_decode(candidate)
        except (ValueError, RecursionError):  # ValueError covers bad JSON and integers past Python's digit limit
            continue
        if isinstance(value, dict):
            shortened = len(text) - place - len(candidate)
            return cast("Mapping[str, Any]", value), place + length + shortened
    return None


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _why_no_call(text: str, request: Request, cut: bool) -> str:
    """Why a text without a usable call is a fault; empty when plain text was allowed and nothing looks like a try."""
    tried = ("{" in text and '"call"' in text) or text.lstrip().startswith(("{", "```"))
    if not tried and request.want == "either":
        return ""
    if cut:
        return "The reply was cut before the JSON object of the call was complete; write a shorter one."
    if tried:
        return f"The JSON could not be read. Write {_SHAPE} and nothing else."
    return f"A call was wanted. Write {_SHAPE}."


def _schema_error(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The most telling way in which the arguments break the schema; a schema that is itself broken refuses nothing."""
    from jsonschema import exceptions
    from jsonschema.validators import validator_for  # pyright: ignore[reportUnknownVariableType]
    from referencing.exceptions import Unresolvable

    best_match: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    kind: Any = validator_for(dict(schema))
    try:
        kind.check_schema(dict(schema))
        error = best_match(kind(dict(schema)).iter_errors(dict(arguments)))
    except (exceptions.SchemaError, Unresolvable, re.error):
        return ""
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    message = str(error.message)
    message = message if len(message) <= 300 else message[:299] + "…"
    return f"{where}: {message}" if where else message
