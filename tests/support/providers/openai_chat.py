"""An emulator of OpenAI's chat completions, and of servers like it that show their reasoning."""

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
    Unknown,
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
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
    }
    | {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "prompt_cache_key",
        "response_format",
        "seed",
    }
    | {"stop", "n", "user", "store", "metadata", "verbosity", "service_tier", "safety_identifier"}
)
_MESSAGE_FIELDS = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"}
    ),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_LONGEST_ID = 40


class OpenAIChat(Emulator):
    """`POST /v1/chat/completions`.

    `reasoning_field`: the delta field in which reasoning is shown, such as "reasoning_content" (DeepSeek, Qwen, Kimi)
    or "reasoning" (vLLM, OpenRouter); such a server requires the reasoning of the current turn's calls back, as
    DeepSeek does. Without one it is OpenAI, which hides it and rejects the field.
    """

    models: ClassVar[Mapping[str, Model]] = MODELS
    forbids_effort_with_tools: ClassVar[frozenset[str]] = frozenset({"gpt-5.4"})

    def __init__(
        self, models: Mapping[str, Model] | None = None, *, reasoning_field: str | None = None
    ) -> None:
        super().__init__(models)
        self._reasoning_field = reasoning_field
        self._reasoning: dict[str, str] = {}
        """The reasoning that a call's ID came with."""
        self._cache = PrefixCache()

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    # -- the request

    def read(self, path: str, body: Body) -> Prompt:
        if path != "/v1/chat/completions":
            raise Rejected(f"Invalid URL (POST {path})", status=404, code="")
        model = self.model(body.get("model", ""))
        check_fields("", body, _FIELDS)
        effort = body.get("reasoning_effort")
        check_effort("reasoning_effort", effort, model)
        check_temperature(body, model, effort)
        limit = self._check_limit(body, model)
        tools = self._check_tools(body)
        if (
            body["model"] in self.forbids_effort_with_tools
            and tools
            and effort not in (None, "none")
        ):
            raise Rejected(
                f"Function tools with reasoning_effort are not supported for {body['model']} in "
                "/v1/chat/completions. Please use /v1/responses instead.",
                param="reasoning_effort",
            )
        messages: list[Body] = body["messages"]
        if not messages:
            raise Rejected(
                "Invalid 'messages': empty array. Expected an array with minimum length 1.",
                param="messages",
            )
        for index, message in enumerate(messages):
            self._check_message(index, message)
        self._check_calls(messages)
        self._check_reasoning(messages)
        total = token_count(_prompt_text(body))
        if total > model.context - (0 if model.reasoning == "none" else model.max_output):
            self._raise_too_long(total, model)
        if model.reasoning == "none" and total + limit > model.context:
            raise Rejected(
                f"This model's maximum context length is {model.context} tokens. However, you requested "
                f"{total + limit} tokens ({total} in the messages, {limit} in the completion). Please reduce the "
                "length of the messages or completion.",
                param="messages",
                code="context_length_exceeded",
            )
        return Prompt(
            number=self.next_number,
            body=body,
            model=body["model"],
            tools=tools,
            messages=merged(_prompt_messages(messages)),
            max_output_tokens=limit,
            is_reasoning=self._reasoning_field is not None or is_reasoning(model, effort),
        )

    def _raise_too_long(self, total: int, model: Model) -> None:
        if model.reasoning == "none":
            message = (
                f"This model's maximum context length is {model.context} tokens. "
                "However, your messages resulted in"
            )
        else:
            limit = model.context - model.max_output
            message = f"Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in"
        raise Rejected(
            f"{message} {total} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )

    def _check_limit(self, body: Body, model: Model) -> int:
        if model.reasoning == "effort" and "max_tokens" in body and self._reasoning_field is None:
            raise Rejected(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.",
                param="max_tokens",
                code="unsupported_parameter",
            )
        name = "max_tokens" if "max_tokens" in body else "max_completion_tokens"
        limit = body.get(name) or model.max_output
        if limit > model.max_output:
            raise Rejected(
                f"{name} is too large: {limit}. This model supports at most {model.max_output} completion tokens, "
                f"whereas you provided {limit}.",
                param=name,
                code="invalid_value",
            )
        return limit

    def _check_tools(self, body: Body) -> tuple[str, ...]:
        tools = entries(body, "tools")
        if "tools" in body and not tools:
            raise Rejected(
                "Invalid 'tools': empty array. Expected an array with minimum length 1.",
                param="tools",
            )
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body and not tools:
                raise Rejected(
                    f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                    param=name,
                )
        for index, tool in enumerate(tools):
            check_fields(f"tools[{index}]", tool, frozenset({"type", "function"}))
            check_name(f"tools[{index}].function.name", tool["function"]["name"])
        names = tuple(tool["function"]["name"] for tool in tools)
        choice = body.get("tool_choice")
        if is_body(choice):
            tool_name = choice["function"]["name"]
            if tool_name not in names:
                raise Rejected(
                    f"Tool choice '{tool_name}' not found in 'tools' parameter.",
                    param="tool_choice",
                )
        return names

    def _check_message(self, index: int, message: Body) -> None:
        place, role = f"messages[{index}]", message.get("role", "")
        if role not in _MESSAGE_FIELDS:
            raise Rejected(
                f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', "
                "and 'developer'.",
                param=f"{place}.role",
                code="invalid_value",
            )
        allowed = _MESSAGE_FIELDS[role]
        if self._reasoning_field and role == "assistant":
            allowed |= {self._reasoning_field}
        check_fields(place, message, allowed)
        content = message.get("content")
        calls = entries(message, "tool_calls")
        if content is None and not (role == "assistant" and calls):
            raise Rejected(
                "Invalid value for 'content': expected a string, got null.",
                param=f"messages.[{index}].content",
            )
        if "tool_calls" in message and not calls:
            raise Rejected(
                f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1, but got an empty "
                "array instead.",
                param=f"{place}.tool_calls",
                code="empty_array",
            )
        for number, call in enumerate(calls):
            check_fields(
                f"{place}.tool_calls[{number}]", call, frozenset({"id", "type", "function"})
            )
            check_length(f"{place}.tool_calls[{number}].id", call["id"], _LONGEST_ID)
            check_name(f"{place}.tool_calls[{number}].function.name", call["function"]["name"])
        if role == "tool":
            check_length(f"{place}.tool_call_id", message["tool_call_id"], _LONGEST_ID)
        for number, part in enumerate(content if is_entries(content) else ()):
            self._check_part(f"{place}.content[{number}]", index, role, part)

    def _check_part(self, place: str, index: int, role: str, part: Body) -> None:
        if part["type"] == "image_url":
            if role != "user":
                raise Rejected(
                    f"Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', but this "
                    f"message with role '{role}' contains an image URL.",
                    param=f"messages.[{index}]",
                    code="invalid_value",
                )
            check_image(f"{place}.image_url.url", part["image_url"]["url"])
        elif part["type"] not in ("text", "refusal"):
            raise Rejected(
                f"Invalid value: '{part['type']}'. Supported values are: 'text', 'image_url', 'input_audio', "
                "'refusal', 'audio', and 'file'.",
                param=f"{place}.type",
                code="invalid_value",
            )
        else:
            check_fields(place, part, frozenset({"type", "text", "refusal"}))

    def _check_calls(self, messages: list[Body]) -> None:
        """Each assistant message's calls are answered by the tool messages right after it, once each."""
        waiting: list[str] = []
        answered: set[str] = set()
        end: Body = {"role": "end"}
        for index, message in enumerate([*messages, end]):
            if message["role"] == "tool":
                identifier = message["tool_call_id"]
                if not waiting and not answered:
                    raise Rejected(
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                        "'tool_calls'.",
                        param=f"messages.[{index}].role",
                    )
                if identifier not in waiting:
                    problem = "Duplicate value for" if identifier in answered else "Unknown"
                    raise Rejected(
                        f"{problem} 'tool_call_id' of '{identifier}' in messages[{index}].",
                        param=f"messages.[{index}].tool_call_id",
                        code="invalid_value",
                    )
                waiting.remove(identifier)
                answered.add(identifier)
                continue
            if waiting:
                raise Rejected(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                    "'tool_call_id'. The following tool_call_ids did not have response messages: "
                    + ", ".join(waiting),
                    param=f"messages.[{index}].role",
                )
            calls = entries(message, "tool_calls")
            waiting, answered = [call["id"] for call in calls], set()
            if len(set(waiting)) < len(waiting):
                raise Rejected(
                    f"Duplicate 'id' in messages[{index}].tool_calls.",
                    param=f"messages.[{index}].tool_calls",
                    code="invalid_value",
                )

    def _check_reasoning(self, messages: list[Body]) -> None:
        if self._reasoning_field is None:
            return
        start = max(
            (index for index, item in enumerate(messages) if item["role"] == "user"), default=0
        )
        for message in messages[start:]:
            for call in message.get("tool_calls") or ():
                issued = self._reasoning.get(call["id"])
                if issued and message.get(self._reasoning_field) != issued:
                    raise Rejected(
                        f"The `{self._reasoning_field}` in the thinking mode must be passed back to the API."
                    )

    # -- the answer

    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        text = _prompt_text(prompt.body)
        key = f"{prompt.model} {prompt.body.get('prompt_cache_key')}"
        shared = self._cache.shared_tokens(key, text)
        total, reasoning = output_tokens(reply)
        return {
            "prompt_tokens": token_count(text),
            "completion_tokens": total,
            "total_tokens": token_count(text) + total,
            "prompt_tokens_details": {
                "cached_tokens": cached_tokens(
                    shared, self.known_models[prompt.model].cache_minimum
                ),
                "audio_tokens": 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def message(self, prompt: Prompt, reply: Reply, usage: Body) -> Body:
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        reasoning = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
        message: Body = {"role": "assistant", "content": text or None, "refusal": None}
        if reply.content_as_parts:
            message["content"] = [
                {"type": "text", "text": part.text}
                for part in reply.parts
                if isinstance(part, Text)
            ]
        calls: list[Body] = []
        for index, part in enumerate(reply.parts):
            if isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": json.dumps(part.arguments)}
                identifier = part.id or self.identifier("call_", prompt.number, index)
                calls.append({"id": identifier, "type": "function", "function": function})
                self._reasoning[identifier] = reasoning
            if isinstance(part, Unknown):
                message.update(part.fields)
        if calls:
            message["tool_calls"] = calls
        if self._reasoning_field and reasoning:
            message[self._reasoning_field] = reasoning
        finish = reply.finish or ("tool_calls" if calls else "stop")
        return {
            "id": self.identifier("chatcmpl-", prompt.number),
            "object": "chat.completion",
            "created": 1_780_000_000,
            "model": prompt.model,
            "choices": [
                {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
            ],
            "usage": usage,
        }

    def events(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[Body]:
        choice = message["choices"][0]
        assistant: Body = choice["message"]

        def chunk(delta: Body, finish: str | None = None) -> Body:
            head = {name: message[name] for name in ("id", "created", "model")}
            choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
            return {**head, "object": "chat.completion.chunk", "choices": choices}

        yield chunk({"role": "assistant", "content": "" if assistant["content"] else None})
        if self._reasoning_field in assistant:
            for piece in pieces(assistant[self._reasoning_field]):
                yield chunk({self._reasoning_field: piece})
        if isinstance(assistant["content"], list):
            yield chunk({"content": assistant["content"]})
        elif assistant["content"]:
            for piece in pieces(assistant["content"]):
                yield chunk({"content": piece})
        for index, call in enumerate(assistant.get("tool_calls", ())):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield chunk({"tool_calls": [{"index": index, **call, "function": function}]})
            for piece in pieces(call["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        standard = {"role", "content", "refusal", "tool_calls", self._reasoning_field}
        if unknown := {name: value for name, value in assistant.items() if name not in standard}:
            yield chunk(unknown)
        yield chunk({}, choice["finish_reason"])
        if section(prompt.body, "stream_options").get("include_usage"):
            yield {**chunk({}), "choices": [], "usage": message["usage"]}

    def end_text(self) -> str:
        return "data: [DONE]\n\n"

    def is_reasoning_event(self, event: Body) -> bool:
        return any(self._reasoning_field in choice["delta"] for choice in event["choices"])

    def error(self, rejected: Rejected) -> Body:
        return error_body(rejected)

    def error_event(self) -> Body:
        return error_body(
            Rejected("The server had an error while processing your request", kind="server_error")
        )


def _prompt_text(body: Mapping[str, Any]) -> str:
    """The prompt in the order of the cache, with images as texts of their size in tokens."""
    parts = [canonical(entries(body, "tools"))]
    for message in body["messages"]:
        content = message.get("content")
        if is_entries(content):
            content = [
                padded(IMAGE_TOKENS, part["image_url"]["url"])
                if part["type"] == "image_url"
                else part
                for part in content
            ]
        parts.append(canonical({**message, "content": content}))
    return "\n".join(parts)


def _prompt_messages(messages: list[Body]) -> Iterator[PromptMessage]:
    for message in messages:
        content: Any = message.get("content") or ""
        parts = content if is_entries(content) else [{"type": "text", "text": content}]
        text = "".join(part.get("text", "") for part in parts if part["type"] == "text")
        images = sum(part["type"] == "image_url" for part in parts)
        if message["role"] == "tool":
            yield PromptMessage("tool", results=((message["tool_call_id"], text),))
            continue
        calls = tuple(
            (
                call["id"],
                call["function"]["name"],
                json.loads(call["function"]["arguments"] or "{}"),
            )
            for call in message.get("tool_calls") or ()
        )
        yield PromptMessage(
            "system" if message["role"] == "developer" else message["role"], text, images, calls
        )
