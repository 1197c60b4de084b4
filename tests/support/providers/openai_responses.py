"""An emulator of OpenAI's Responses API."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from providers.media import IMAGE_TOKENS
from providers.openai_errors import (
    MODELS,
    cached_tokens,
    check_effort,
    check_fields,
    check_image,
    check_length,
    check_name,
    check_temperature,
    error_body,
    is_reasoning,
)
from providers.script import (
    Prompt,
    PromptMessage,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolSearch,
    merged,
    output_tokens,
    token_count,
)
from providers.server import (
    Body,
    Emulator,
    Model,
    PrefixCache,
    Rejected,
    canonical,
    entries,
    is_body,
    is_entries,
    padded,
    pieces,
    section,
)

_FIELDS = frozenset(
    {
        "model",
        "input",
        "instructions",
        "stream",
        "stream_options",
        "max_output_tokens",
        "temperature",
        "top_p",
    }
    | {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning",
        "include",
        "store",
        "prompt_cache_key",
        "text",
    }
    | {
        "metadata",
        "user",
        "service_tier",
        "truncation",
        "safety_identifier",
        "previous_response_id",
    }
)
_ITEM_FIELDS = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "reasoning": frozenset({"type", "id", "summary", "encrypted_content", "content", "status"}),
    "function_call": frozenset(
        {"type", "id", "call_id", "name", "arguments", "status", "namespace"}
    ),
    "tool_search_call": frozenset({"type", "id", "call_id", "execution", "status", "arguments"}),
    "tool_search_output": frozenset({"type", "id", "call_id", "execution", "status", "tools"}),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
}
_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text", "input_image", "input_file"),
    "developer": ("input_text", "input_image", "input_file"),
    "assistant": ("output_text", "refusal"),
}
_LEAST_OUTPUT = 16
_ENCRYPTED = "reasoning.encrypted_content"


class OpenAIResponses(Emulator):
    """`POST /v1/responses`.

    Stricter than the real service in one point: a function call of the current turn that came with a reasoning item
    must come back after it, even without its own item ID.
    """

    models: ClassVar[Mapping[str, Model]] = MODELS

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        super().__init__(models)
        self._reasons: dict[str, str] = {}
        """The ID of the reasoning item that a call's ID, or an item's, came with."""
        self._stored: set[str] = set()
        self._cache = PrefixCache()

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    # -- the request

    def read(self, path: str, body: Body) -> Prompt:
        if path != "/v1/responses":
            raise Rejected(f"Invalid URL (POST {path})", status=404)
        model = self.model(body.get("model", ""))
        check_fields("", body, _FIELDS)
        effort = section(body, "reasoning").get("effort")
        check_effort("reasoning.effort", effort, model)
        check_temperature(body, model, effort)
        limit = self._check_limit(body, model)
        tools = self._check_tools(body)
        items = _items(body)
        if not items:
            raise Rejected(
                'One of "input" or "previous_response_id" must be provided.', param="input"
            )
        for index, item in enumerate(items):
            self._check_item(f"input[{index}]", item)
        self._check_calls(items)
        self._check_reasoning(items, is_stored=body.get("store") is not False)
        total = token_count(_prompt_text(body))
        if total > model.context - (0 if model.reasoning == "none" else model.max_output):
            raise Rejected(
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                param="input",
                code="context_length_exceeded",
            )
        return Prompt(
            number=self.next_number,
            body=body,
            model=body["model"],
            tools=tools,
            messages=merged(_prompt_messages(body)),
            max_output_tokens=limit,
            is_reasoning=is_reasoning(model, effort),
        )

    def _check_limit(self, body: Body, model: Model) -> int:
        limit = body.get("max_output_tokens") or model.max_output
        if limit < _LEAST_OUTPUT:
            raise Rejected(
                f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {_LEAST_OUTPUT}, but "
                f"got {limit} instead.",
                param="max_output_tokens",
                code="integer_below_min_value",
            )
        if limit > model.max_output:
            raise Rejected(
                f"Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {model.max_output}, "
                f"but got {limit} instead.",
                param="max_output_tokens",
                code="integer_above_max_value",
            )
        return limit

    def _check_tools(self, body: Body) -> tuple[str, ...]:
        tools = entries(body, "tools")
        searches = any(tool["type"] == "tool_search" for tool in tools)
        names: list[str] = []
        for index, tool in enumerate(tools):
            if tool["type"] != "function":
                continue
            check_name(f"tools[{index}].name", tool["name"])
            if tool.get("defer_loading") and not searches:
                raise Rejected(
                    "Deferred tools require a tool_search tool.",
                    param=f"tools[{index}].defer_loading",
                )
            names.append(tool["name"])
        choice = body.get("tool_choice")
        if is_body(choice) and choice.get("name") not in names:
            raise Rejected(
                f"Tool choice '{choice.get('name')}' not found in 'tools' parameter.",
                param="tool_choice",
            )
        return tuple(names)

    def _check_item(self, place: str, item: Body) -> None:
        kind = item.get("type", "message")
        if kind not in _ITEM_FIELDS:
            raise Rejected(
                f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, _ITEM_FIELDS))}.",
                param=f"{place}.type",
                code="invalid_value",
            )
        check_fields(place, item, _ITEM_FIELDS[kind])
        if kind == "message":
            role = item["role"]
            if role not in _PARTS:
                raise Rejected(
                    f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
                    param=f"{place}.role",
                    code="invalid_value",
                )
            self._check_parts(f"{place}.content", item["content"], _PARTS[role])
        if kind == "function_call":
            check_name(f"{place}.name", item["name"], 128)
        if kind in ("function_call", "function_call_output"):
            check_length(f"{place}.call_id", item["call_id"], 64)
        if kind == "function_call_output":
            self._check_parts(f"{place}.output", item["output"], _PARTS["user"])

    def _check_parts(self, place: str, content: Any, allowed: tuple[str, ...]) -> None:
        if isinstance(content, str):
            return
        parts: list[Body] = content
        for index, part in enumerate(parts):
            if part["type"] not in allowed:
                raise Rejected(
                    f"Invalid value: '{part['type']}'. Supported values are: {' and '.join(map(repr, allowed))}.",
                    param=f"{place}[{index}]",
                    code="invalid_value",
                )
            if part["type"] == "input_image":
                check_image(f"{place}[{index}].image_url", part["image_url"])

    def _check_calls(self, items: list[Body]) -> None:
        """Each call has one output behind it, and each output a call before it."""
        called: list[str] = []
        answered: set[str] = set()
        item_ids: set[str] = set()
        for item in items:
            if (identifier := item.get("id")) is not None:
                if identifier in item_ids:
                    raise Rejected(
                        f"Duplicate item found with id {identifier}. Remove duplicate items from your input and try "
                        "again.",
                        param="input",
                    )
                item_ids.add(identifier)
            kind, call = item.get("type"), item.get("call_id", "")
            if kind == "function_call":
                if call in called:
                    raise Rejected(
                        f"Duplicate function call found with call_id {call}.", param="input"
                    )
                called.append(call)
            if kind == "function_call_output":
                if call not in called:
                    raise Rejected(
                        f"No tool call found for function call output with call_id {call}.",
                        param="input",
                    )
                if call in answered:
                    raise Rejected(
                        f"Duplicate function call output found with call_id {call}.", param="input"
                    )
                answered.add(call)
        for call in called:
            if call not in answered:
                raise Rejected(f"No tool output found for function call {call}.", param="input")

    def _check_reasoning(self, items: list[Body], *, is_stored: bool) -> None:
        start = max(
            (index for index, item in enumerate(items) if item.get("role") == "user"), default=0
        )
        reasoning = ""
        for index, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "reasoning":
                self._check_reasoning_item(item, is_stored=is_stored)
                following = items[index + 1] if index + 1 < len(items) else {"role": "user"}
                if (
                    following.get("role") == "user"
                    or following.get("type") == "function_call_output"
                ):
                    raise Rejected(
                        f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
                        param="input",
                    )
                reasoning = item["id"]
            elif kind == "function_call":
                needed = self._reasons.get(item["call_id"])
                if needed and needed != reasoning and (index > start or item.get("id")):
                    raise Rejected(
                        f"Item '{item.get('id', item['call_id'])}' of type 'function_call' was provided without its "
                        f"required 'reasoning' item: '{needed}'.",
                        param="input",
                    )
            elif kind == "function_call_output" or item.get("role") == "user":
                reasoning = ""

    def _check_reasoning_item(self, item: Body, *, is_stored: bool) -> None:
        identifier, encrypted = item.get("id", ""), item.get("encrypted_content")
        if encrypted is None:
            if is_stored and identifier in self._stored:
                return
            raise Rejected(
                f"Item with id '{identifier}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
        signature, _, text = encrypted.partition(".")
        if not self.is_signed(signature, identifier, text):
            raise Rejected(
                f"The encrypted content for item {identifier} could not be verified. Reason: Encrypted content could "
                "not be decrypted or parsed.",
                code="invalid_encrypted_content",
            )

    # -- the answer

    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        text = _prompt_text(prompt.body)
        shared = self._cache.shared_tokens(
            f"{prompt.model} {prompt.body.get('prompt_cache_key')}", text
        )
        total, reasoning = output_tokens(reply)
        cached = cached_tokens(shared, self.known_models[prompt.model].cache_minimum)
        return {
            "input_tokens": token_count(text),
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": total,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": token_count(text) + total,
        }

    def message(self, prompt: Prompt, reply: Reply, usage: Body) -> Body:
        body = prompt.body
        output: list[Body] = []
        reasoning = ""
        for index, part in enumerate(reply.parts):
            match part:
                case Reasoning(text):
                    reasoning = self.identifier("rs_", prompt.number, index)
                    item: Body = {"type": "reasoning", "id": reasoning, "summary": []}
                    if section(body, "reasoning").get("summary"):
                        item["summary"] = [{"type": "summary_text", "text": text}]
                    if _ENCRYPTED in (body.get("include") or ()):
                        hidden = base64.b64encode(text.encode()).decode()
                        item["encrypted_content"] = f"{self.sign(reasoning, hidden)}.{hidden}"
                case Text(text):
                    content: list[Body] = [
                        {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
                    ]
                    item = {
                        "type": "message",
                        "id": self.identifier("msg_", prompt.number, index),
                        "content": content,
                    }
                    item |= {"role": "assistant", "status": "completed"}
                case ToolCall(name, arguments, id=given):
                    call = given or self.identifier("call_", prompt.number, index)
                    item = {
                        "type": "function_call",
                        "id": self.identifier("fc_", prompt.number, index),
                        "call_id": call,
                    }
                    item |= {
                        "name": name,
                        "arguments": json.dumps(arguments),
                        "status": "completed",
                    }
                    if reasoning:
                        self._reasons[call] = reasoning
                case ToolSearch(_, names):
                    shared: Body = {"execution": "server", "call_id": None, "status": "completed"}
                    search = self.identifier("tsc_", prompt.number, index)
                    output.append(
                        {
                            "type": "tool_search_call",
                            "id": search,
                            "arguments": {"paths": [*names]},
                            **shared,
                        }
                    )
                    loaded = [tool for tool in entries(body, "tools") if tool.get("name") in names]
                    search = self.identifier("tso_", prompt.number, index)
                    item = {"type": "tool_search_output", "id": search, "tools": loaded, **shared}
                case other:
                    item = dict(other.fields)
            output.append(item)
            if body.get("store") is not False and "id" in item:
                self._stored.add(item["id"])
        finish = {"length": "max_output_tokens"}.get(reply.finish or "", reply.finish)
        return {
            **self._shell(prompt),
            "status": "incomplete" if finish else "completed",
            "incomplete_details": {"reason": finish} if finish else None,
            "output": output,
            "usage": usage,
        }

    def _shell(self, prompt: Prompt) -> Body:
        return {
            "id": self.identifier("resp_", prompt.number),
            "object": "response",
            "created_at": 1_780_000_000,
            "status": "in_progress",
            "model": prompt.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": list(prompt.body.get("tools") or ()),
            "usage": None,
        }

    def events(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[Body]:
        for number, event in enumerate(self._plain_events(prompt, message)):
            yield {**event, "sequence_number": number}

    def _plain_events(self, prompt: Prompt, message: Body) -> Iterator[Body]:
        yield {"type": "response.created", "response": self._shell(prompt)}
        yield {"type": "response.in_progress", "response": self._shell(prompt)}
        for index, item in enumerate(message["output"]):
            place: Body = {"output_index": index, "item_id": item.get("id")}
            empty: Mapping[str, Body] = {
                "reasoning": {"summary": []},
                "message": {"content": []},
                "function_call": {"arguments": ""},
            }
            yield {
                "type": "response.output_item.added",
                "output_index": index,
                "item": item | empty.get(item["type"], {}),
            }
            match item["type"]:
                case "reasoning":
                    for number, part in enumerate(item["summary"]):
                        part_place = {**place, "summary_index": number}
                        start = {"type": "summary_text", "text": ""}
                        yield {
                            "type": "response.reasoning_summary_part.added",
                            **part_place,
                            "part": start,
                        }
                        for piece in pieces(part["text"]):
                            yield {
                                "type": "response.reasoning_summary_text.delta",
                                **part_place,
                                "delta": piece,
                            }
                        yield {
                            "type": "response.reasoning_summary_text.done",
                            **part_place,
                            "text": part["text"],
                        }
                case "message":
                    part_place = {**place, "content_index": 0}
                    part = item["content"][0]
                    yield {
                        "type": "response.content_part.added",
                        **part_place,
                        "part": {**part, "text": ""},
                    }
                    for piece in pieces(part["text"]):
                        yield {
                            "type": "response.output_text.delta",
                            **part_place,
                            "delta": piece,
                            "logprobs": [],
                        }
                    yield {
                        "type": "response.output_text.done",
                        **part_place,
                        "text": part["text"],
                        "logprobs": [],
                    }
                    yield {"type": "response.content_part.done", **part_place, "part": part}
                case "function_call":
                    for piece in pieces(item["arguments"]):
                        yield {
                            "type": "response.function_call_arguments.delta",
                            **place,
                            "delta": piece,
                        }
                    end = {"name": item["name"], "arguments": item["arguments"]}
                    yield {"type": "response.function_call_arguments.done", **place, **end}
                case _:
                    pass
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": f"response.{message['status']}", "response": message}

    def event_text(self, event: Body) -> str:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

    def is_reasoning_event(self, event: Body) -> bool:
        return event["type"] == "response.reasoning_summary_text.delta"

    def error(self, rejected: Rejected) -> Body:
        return error_body(rejected)

    def error_event(self) -> Body:
        return {
            "type": "error",
            "code": "server_error",
            "message": "The server had an error while processing your request",
            "param": None,
            "sequence_number": 0,
        }


def _items(body: Mapping[str, Any]) -> list[Body]:
    items: Any = body.get("input") or []
    return (
        [{"type": "message", "role": "user", "content": items}] if isinstance(items, str) else items
    )


def _prompt_text(body: Mapping[str, Any]) -> str:
    """The prompt in the order of the cache, with images as texts of their size in tokens."""
    tools = [tool for tool in entries(body, "tools") if not tool.get("defer_loading")]
    parts = [canonical(tools), body.get("instructions") or ""]
    for item in _items(body):
        fields = {
            name: value
            for name, value in item.items()
            if name not in ("id", "encrypted_content", "status")
        }
        for name in ("content", "output"):
            if is_entries(parts_in := fields.get(name)):
                fields[name] = [
                    padded(IMAGE_TOKENS, part["image_url"])
                    if part["type"] == "input_image"
                    else part
                    for part in parts_in
                ]
        parts.append(canonical(fields))
    return "\n".join(parts)


def _prompt_messages(body: Mapping[str, Any]) -> Iterator[PromptMessage]:
    if body.get("instructions"):
        yield PromptMessage("system", body["instructions"])
    for item in _items(body):
        match item.get("type", "message"):
            case "message":
                text, images = _content(item["content"])
                role = item["role"]
                yield PromptMessage("system" if role == "developer" else role, text, images)
            case "function_call":
                arguments = json.loads(item["arguments"] or "{}")
                yield PromptMessage(
                    "assistant", calls=((item["call_id"], item["name"], arguments),)
                )
            case "function_call_output":
                text, images = _content(item["output"])
                yield PromptMessage("tool", images=images, results=((item["call_id"], text),))
            case _:
                pass


def _content(content: Any) -> tuple[str, int]:
    if isinstance(content, str):
        return content, 0
    parts: list[Body] = content
    return "".join(part.get("text", "") for part in parts), sum(
        part["type"] == "input_image" for part in parts
    )
