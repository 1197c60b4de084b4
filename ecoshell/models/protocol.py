"""How a request is told to a model, and the calls in its reply read: natively, or as text.

A provider with tool calls of its own takes chat messages and a tool array, with marks for its prompt cache. Names that
providers refuse (they allow letters, digits, `_` and `-`) are replaced by safe ones on the way out, and `real_name`
finds the way back. To every other model the tools are told in the system message, and calls and results are text.

The rendering is append-only: adding messages to a request never changes a byte of what the earlier ones became, so a
cached prefix stays valid. Parsing never raises: what cannot be used becomes `Reply.fault`, in words for the model.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha1
from typing import Any, cast

from ecoshell.messages import Call, Message, ToolDocument, Usage
from ecoshell.models import Reply, Request
from ecoshell.models.formats import GENERIC, Attempt, CallFormat, call_json, refuse_constant

PROTOCOL = """You act by calling tools. To call one, write {"name": <name of the tool>, "arguments": <JSON object>} \
and nothing after it. Its result comes back in the next message.
When no tool is needed, answer in plain text."""
"""The same whatever is wanted of a reply, which the last message says: so all that is asked begins alike."""
_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_CHOICE = {"call": "required", "either": "auto", "text": "none"}
_CACHE_MARK = {"type": "ephemeral"}
_ASKED_ONCE = frozenset({"rank", "judge", "compact"})
"""Purposes whose prompt no later call continues, so that writing it to a cache would cost and never pay."""

CUT = "The reply was cut before the call was complete; write a shorter one."
_DEEPEST = 64
"""Levels of arguments: each reader of what happened would go down as many."""


# -- calls as text


def as_plain_messages(request: Request) -> list[Message]:
    """The request's messages as system, user and assistant texts alone, the tools and the protocol in the first one."""
    messages = list(request.messages)
    opening = ""
    if messages and messages[0].speaker == "system":
        opening = messages.pop(0).text
    if request.tools:
        documents = "\n".join(document.as_text() for document in request.tools)
        told = f"{PROTOCOL}\n\nTools:\n{documents}"
        opening = f"{opening}\n\n{told}" if opening else told
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
    found = form.read(text, request.callable_now)
    calls, fault, attempt = usable_calls(found.attempts, request.callable_now)
    if calls or fault:
        return Reply(found.text, calls, usage, fault, cut, attempt)
    if not found.broken and request.want == "either":
        return Reply(found.text, usage=usage, cut=cut)
    shape = "the call in your own format"
    if form.syntax == "json":
        shape = form.write("<name of the tool>", "<JSON object>")
    if cut:
        fault = CUT
    elif found.broken:
        fault = f"The call could not be read. Write {shape} and nothing after it."
    else:
        fault = f"A call was wanted. Write {shape}."
    return Reply(found.text, usage=usage, cut=cut, fault=fault)


def usable_calls(
    attempts: Iterable[Attempt], documents: Sequence[ToolDocument]
) -> tuple[tuple[Call, ...], str, Call | None]:
    """The calls up to one that cannot be used; if that is the first, what is wrong with it, and it, as far as it goes.

    Arguments may be an object, or its JSON.
    """
    calls: list[Call] = []
    for attempt in attempts:
        name, arguments, call = attempt.name, attempt.arguments, None
        fault = 'A call needs "name" (a text) and "arguments" (an object).'
        if isinstance(name, str) and isinstance(arguments, str):
            call, fault = Call(name), f"The arguments of {name} must be one JSON object."
            try:
                arguments = json.loads(arguments, parse_constant=refuse_constant)
            except (ValueError, RecursionError) as error:
                fault = f"The arguments of {name} are no JSON ({error}). Write them again as one JSON object."
        if isinstance(name, str) and isinstance(arguments, dict):
            call = Call(name, cast("dict[str, Any]", arguments))
            fault = call_fault(call, documents)
            call = Call(name) if too_deep(call.arguments) else call
        if call is None or fault:
            return tuple(calls), "" if calls else fault, None if calls else call
        calls.append(call)
    return tuple(calls), "", None


def too_deep(value: object, levels: int = _DEEPEST) -> bool:
    """Whether a value of JSON has more lists and objects inside one another than arguments may have."""
    if isinstance(value, Mapping):
        value = [*cast("Mapping[str, object]", value).values()]
    if not isinstance(value, list):
        return False
    return levels == 0 or any(too_deep(one, levels - 1) for one in cast("list[object]", value))


def without_reasoning(text: str) -> tuple[str, str]:
    """The reasoning a text begins with, where its model marks that, and the rest."""
    begun = text.lstrip()
    if not begun.startswith("<think>"):
        return "", text
    reasoning, _, rest = begun.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), rest.lstrip()


def call_fault(call: Call, documents: Sequence[ToolDocument]) -> str:
    """What is wrong with a call, in words the model can act on; empty when it fits one of the documents."""
    document = next((known for known in documents if known.name == call.name), None)
    if document is None:
        names = ", ".join(known.name for known in documents)
        return f"There is no tool named {call.name!r}. The tools that can be called now: {names or 'none'}."
    if too_deep(call.arguments):
        return f"The arguments of {call.name} go more than {_DEEPEST} levels deep."
    try:
        json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return f"The arguments of {call.name} hold half of a surrogate pair, which is no text."
    except ValueError:
        return f"The arguments of {call.name} hold a number that JSON has no word for, or one too large."
    from jsonschema import exceptions
    from jsonschema.validators import validator_for  # pyright: ignore[reportUnknownVariableType]
    from referencing.exceptions import Unresolvable

    best_match: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    schema = dict(document.parameters)
    kind: Any = validator_for(schema)
    try:
        kind.check_schema(schema)
        error = best_match(kind(schema).iter_errors(dict(call.arguments)))
    except (exceptions.SchemaError, Unresolvable, re.error, OverflowError):  # such a schema refuses nothing
        return ""
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    message = str(error.message)
    message = message if len(message) <= 300 else message[:299] + "…"
    message = f"{where}: {message}" if where else message
    return f"The arguments of {call.name} do not fit its parameters: {message}."


# -- as providers take it


def chat_body(request: Request, *, native: bool) -> dict[str, Any]:
    """The request for a model with `native` tool calls, or for one to which tools and calls are text.

    Natively one call alone may be made where a call is what is wanted.
    """
    if not native:
        plain_messages = as_plain_messages(request)
        return {"messages": [{"role": message.speaker, "content": message.text} for message in plain_messages]}
    chat: list[dict[str, Any]] = []
    for message, result, identity in exchanges(request.messages):
        if result is None or message.call is None:  # on its own, which providers refuse: it becomes text
            plain = as_plain(message)
            chat += [{"role": plain.speaker, "content": plain.text}] if plain.text else []
            continue
        function = {"name": safe_name(message.call.name), "arguments": call_json(message.call)}
        calls = [{"id": identity, "type": "function", "function": function}]
        chat.append({"role": "assistant", "content": message.text or None, "tool_calls": calls})
        chat.append({"role": "tool", "tool_call_id": identity, "content": result.text})
    return {
        "messages": chat,
        "tools": [replace(document, name=safe_name(document.name)).as_function() for document in request.tools],
        "tool_choice": _CHOICE[request.want],
        "parallel_tool_calls": request.want == "either",
    }


def mark_for_cache(body: dict[str, Any], request: Request) -> None:
    """Put Anthropic's cache marks on the system text, which covers the tools before it, and on the last message.

    Anthropic caches nothing that is not marked. At the next step the marked prefix is read for a tenth of its price.
    A task that no other ask is told is left out: in the place of the last message, what stands before it is marked.
    """
    messages: list[dict[str, Any]] = body["messages"]
    if request.purpose in _ASKED_ONCE or not messages:
        return
    system = [message for message in messages if message["role"] == "system"]
    if system:
        _mark(system[-1])
    elif body.get("tools"):
        body["tools"][-1]["cache_control"] = _CACHE_MARK
    if not request.task:
        if messages[-1]["role"] != "system":
            _mark(messages[-1])
        return
    asked = [message for message in messages if message["role"] in ("user", "tool")]
    for at, message in reversed([*enumerate(asked)]):
        text: str = message["content"]
        if text == request.task.lstrip():
            if at:
                _mark(asked[at - 1])
            return
        if message["role"] == "user" and text.endswith(request.task):  # the rest of it is parted from the task
            rest = {"type": "text", "text": text.removesuffix(request.task), "cache_control": _CACHE_MARK}
            message["content"] = [rest, {"type": "text", "text": request.task}]
            return


def safe_name(name: str) -> str:
    """The name itself where providers take it, else one they take, still unique."""
    if _ALLOWED.fullmatch(name):
        return name
    return f"{_NOT_ALLOWED.sub('_', name)[:55]}_{sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def real_name(name: str, documents: Iterable[ToolDocument]) -> str:
    """The name of the document that went out under this name; the name itself when there is none."""
    return next((document.name for document in documents if safe_name(document.name) == name), name)


def exchanges(messages: Sequence[Message]) -> Iterator[tuple[Message, Message | None, str]]:
    """The messages, a call together with the result that follows it, and an id for the two.

    The id is of nine letters and digits, the only form that every provider and every template takes.
    """
    at = 0
    while at < len(messages):
        message, result = messages[at], messages[at + 1] if at + 1 < len(messages) else None
        call = message.call if message.speaker == "assistant" else None
        if call is None or result is None or result.speaker != "tool" or (result.call or call).name != call.name:
            result = None
        yield message, result, f"call{at:05d}"
        at += 1 if result is None else 2


def _mark(message: dict[str, Any]) -> None:
    if message["role"] == "tool":
        message["cache_control"] = _CACHE_MARK
    elif isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"], "cache_control": _CACHE_MARK}]
