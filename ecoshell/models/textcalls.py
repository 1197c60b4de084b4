"""Calls as text: the tools told in the system message, for models without tool calls of their own, and read again.

The rendering is append-only: adding messages to a request never changes a byte of what the earlier ones became, so a
cached prefix stays valid. Parsing never raises: what cannot be used becomes `Reply.fault`, in words for the model.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ecoshell.messages import Call, Message, ToolDocument, Usage
from ecoshell.models.base import Reply, Request
from ecoshell.models.formats import GENERIC, Attempt, CallFormat, call_json, decoded

PROTOCOL = """You act by calling tools. To call one, write {"name": <name of the tool>, "arguments": <JSON object>} \
and nothing after it. Its result comes back in the next message."""

_MUST = "Every reply must end in a call."
_MAY = "When no tool is needed, answer in plain text."


def as_plain_messages(request: Request) -> list[Message]:
    """The request's messages as system, user and assistant texts alone, the tools and the protocol in the first one."""
    messages = list(request.messages)
    opening = ""
    if messages and messages[0].speaker == "system":
        opening = messages.pop(0).text
    if request.tools:
        opening = f"{opening}\n\n{_tools_text(request)}" if opening else _tools_text(request)
    plain = [Message("system", opening)] if opening else []
    return plain + [as_plain(message) for message in messages]


def as_plain(message: Message) -> Message:
    """A message without a call: a call is part of the text, and its result is the user's."""
    if message.speaker == "assistant" and message.call is not None:
        return Message("assistant", call_text(message.call, message.text))
    if message.speaker == "tool":
        name = message.call.name if message.call else "the tool"
        return Message("user", f"Result of {name}:\n{message.text}")
    return Message(message.speaker, message.text)


def call_text(call: Call, thought: str = "") -> str:
    """A call as a model writes it, after what it thought."""
    written = GENERIC.write(call.name, call_json(call))
    return f"{thought}\n{written}" if thought else written


def parse_reply(
    text: str, request: Request, usage: Usage | None = None, cut: bool = False, form: CallFormat = GENERIC
) -> Reply:
    """The reply a plain text stands for; never raises.

    Code fences, prose around calls, missing closing marks and trailing commas are forgiven; names and arguments are
    not: they must match one of `request.callable_now`.
    """
    if request.want == "text":
        return Reply(text.strip(), usage=usage, cut=cut)
    found = form.read(text)
    reply = Reply(found.text, usage=usage, cut=cut)
    calls: list[Call] = []
    for attempt in found.attempts:
        call, fault = _call(attempt, request.callable_now)
        if not fault and call is not None:
            calls.append(call)
        elif calls:
            break
        else:
            return Reply(found.text, usage=usage, cut=cut, fault=fault, attempt=call)
    if calls:
        return Reply(found.text, tuple(calls), usage, cut=cut)
    if not found.broken and request.want == "either":
        return reply
    return Reply(found.text, usage=usage, cut=cut, fault=_why_no_call(form, cut, tried=found.broken))


def without_reasoning(text: str) -> tuple[str, str]:
    """The reasoning a text begins with, where its model marks that, and the rest."""
    begun = text.lstrip()
    if not begun.startswith("<think>"):
        return "", text
    reasoning, _, rest = begun.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), rest.lstrip()


def _call(attempt: Attempt, documents: Sequence[ToolDocument]) -> tuple[Call | None, str]:
    """The call that was attempted, where it can be read, and what is wrong with it."""
    name, arguments = attempt.name, attempt.arguments
    if isinstance(arguments, str):
        arguments = decoded(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None, 'A call needs "name" (a text) and "arguments" (an object).'
    call = Call(name, cast("dict[str, Any]", arguments))
    return call, call_fault(call, documents)


def call_fault(call: Call, documents: Sequence[ToolDocument]) -> str:
    """What is wrong with a call, in words the model can act on; empty when it fits one of the documents."""
    document = next((known for known in documents if known.name == call.name), None)
    if document is None:
        names = ", ".join(known.name for known in documents)
        return f"There is no tool named {call.name!r}. The tools that can be called now: {names or 'none'}."
    try:
        json.dumps(dict(call.arguments), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return f"The arguments of {call.name} hold half of a surrogate pair, which is no text."
    error = _schema_error(call.arguments, document.parameters)
    return f"The arguments of {call.name} do not fit its parameters: {error}." if error else ""


def _tools_text(request: Request) -> str:
    documents = "\n".join(document.as_text() for document in request.tools)
    return f"{PROTOCOL}\n{_MUST if request.want == 'call' else _MAY}\n\nTools:\n{documents}"


def _why_no_call(form: CallFormat, cut: bool, *, tried: bool) -> str:
    """Why a text without a usable call is a fault."""
    if cut:
        return "The reply was cut before the call was complete; write a shorter one."
    shape = (
        form.write("<name of the tool>", "<JSON object>") if form.syntax == "json" else "the call in your own format"
    )
    if tried:
        return f"The call could not be read. Write {shape} and nothing after it."
    return f"A call was wanted. Write {shape}."


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
