"""Replies of remote models: from the helper's record to a `Reply`, and what its provider accepts back."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ecoshell.messages import Call, ProviderState, Usage
from ecoshell.models import Reply, Request
from ecoshell.models.call_parsing import Attempt
from ecoshell.models.formats import format_of_text
from ecoshell.models.protocol import CUT, parse_reply, read_call, safe_name, without_reasoning
from ecoshell.models.tool_search import is_server_call

_CALLS_END = ("}", "]", "```", ">")  # endings of texts that end with a call
_FINISH_NOTES = {
    "content_filter": "[The provider's content filter ended this reply.]",
    "refusal": "[The model refused to answer.]",
}
_SENDABLE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ANTHROPIC_HOSTS = ("anthropic", "azure_ai", "bedrock", "vertex_ai")
_GEMINI = ("gemini", "vertex_ai")
_RESPONSES_FIELDS = ("openai_responses_replay", "tool_search_items")

Record = Mapping[str, Any]


def reply_of(
    record: Record, request: Request, message: dict[str, Any], family: str, *, native: bool
) -> Reply:
    """The reply in a record; `message` is what its provider family gets back, with unusable calls corrected."""
    usage, finish = _plausible_usage(record["usage"]), record["finish"]
    cut = finish == "length"
    reasoning, text = without_reasoning(_with_note(record["text"], finish))
    reasoning = record["reasoning"] or reasoning
    sent_calls: list[dict[str, Any]] = [*message.get("tool_calls", ())]
    own = [index for index, call in enumerate(sent_calls) if not is_server_call(call)]
    if native and own:
        made = [sent_calls[index] for index in own]
        calls, fault = _native_calls([record["calls"][index] for index in own], made, request), ""
        if cut and calls[-1].fault:  # the incomplete last call
            fault, calls = ("", calls[:-1]) if len(calls) > 1 else (CUT, ())
            message = {**message, "tool_calls": [c for c in sent_calls if c is not made[-1]]}
        reply = Reply(text, calls, usage, fault, cut)
        is_known = True
    else:
        reply = parse_reply(text, request, usage, cut, format_of_text(text))
        if native and _is_example(text, reply, request):
            reply = Reply(text, usage=usage, cut=cut)
        is_known = not (reply.calls or reply.fault)  # calls written as text are not
    state = ProviderState(family, message) if is_known else None
    return replace(reply, reasoning=reasoning, finish=finish, state=state)


def _plausible_usage(counts: Record | None) -> Usage | None:
    if not counts or not counts["input"]:
        return None
    are_counts = all(type(count) is int and count >= 0 for count in counts.values())
    return Usage(**counts) if are_counts else None


def _with_note(text: str, finish: str) -> str:
    """The text with a note about its end, except that of a refusal, which is the answer."""
    note = "" if text and finish == "refusal" else _FINISH_NOTES.get(finish, "")
    return f"{text}\n\n{note}".strip() if note else text


def _is_example(text: str, reply: Reply, request: Request) -> bool:
    """Whether the unusable call of a reply is an example inside its text."""
    names = {schema.name for schema in (*request.callable_now, *request.tools)}
    is_unknown = reply.attempt is not None and reply.attempt.name not in names
    return is_unknown and not text.rstrip().endswith(_CALLS_END)


def _native_calls(
    records: Sequence[Record], made: Sequence[dict[str, Any]], request: Request
) -> tuple[Call, ...]:
    """All calls of a reply, with faults if they cannot run; `made` are the same calls as they are sent back.

    Arguments that are not a JSON object are sent back as an empty object, because providers reject them.
    """
    schemas = (*request.callable_now, *request.tools)
    offered = {schema.name for schema in schemas}
    calls: list[Call] = []
    ids: set[str] = set()
    for record, sent in zip(records, made, strict=True):
        call = read_call(Attempt(record["name"], record["arguments"] or "{}"), schemas)
        if call.name not in offered:  # the executor suggests similar names
            call = replace(call, fault="")
        if not call.arguments and not _is_json_object(sent["function"]["arguments"]):
            sent["function"]["arguments"] = "{}"
        if not sent["id"] or sent["id"] in ids:  # each result needs a unique ID
            sent["id"] = f"{sent['id'] or 'call'}_{len(calls)}"
        ids.add(sent["id"])
        if not _SENDABLE_NAME.fullmatch(record["name"]):
            sent["function"]["name"] = safe_name(call.name)
        calls.append(replace(call, id=sent["id"]))
    return tuple(calls)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def is_anthropic(provider: str, name: str) -> bool:
    """Whether a model takes Anthropic's fields: cache marks and thinking blocks."""
    return "claude" in name and provider.startswith(_ANTHROPIC_HOSTS)


def sent_back(message: Record, provider: str, name: str, *, own_server: bool) -> dict[str, Any]:
    """The fields of a reply that its provider accepts back; litellm passes on all keys, and some are rejected."""
    sent_keys, inner_keys = {"content", "tool_calls"}, _RESPONSES_FIELDS
    fields: Record = message.get("provider_specific_fields") or {}
    if is_anthropic(provider, name):
        sent_keys, inner_keys = {*sent_keys, "thinking_blocks"}, ("tool_results",)
    elif provider in _GEMINI:
        # Calls have their own signatures; only that of the text is sent with the message.
        made: Sequence[Record] = message.get("tool_calls") or ()
        own = [call.get("provider_specific_fields", {}).get("thought_signature") for call in made]
        signatures = [mark for mark in fields.get("thought_signatures") or () if mark not in own]
        fields = {"thought_signatures": signatures} if signatures else {}
        inner_keys = ("thought_signatures",)
    elif provider == "openrouter":
        sent_keys, inner_keys = {*sent_keys, "reasoning", "reasoning_details"}, tuple(fields)
    elif provider in ("openai", "azure") and not own_server:
        sent_keys, inner_keys = {*sent_keys, "reasoning_items"}, (*_RESPONSES_FIELDS, "phase")
    else:
        sent_keys |= {"reasoning_content", "reasoning_items"}
    sent = {key: value for key, value in message.items() if key in sent_keys}
    fields = {key: value for key, value in fields.items() if key in inner_keys}
    return sent | {"provider_specific_fields": fields} if fields else sent
