"""An emulator of Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from providers.media import IMAGE_TOKENS, IMAGE_TYPES, decoded, sniffed_type
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
        "system",
        "max_tokens",
        "metadata",
        "stop_sequences",
        "stream",
        "temperature",
        "thinking",
    }
    | {
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "service_tier",
        "output_config",
        "cache_control",
        "context_management",
    }
)
_BLOCK_FIELDS = {
    "text": frozenset({"text", "citations", "cache_control"}),
    "image": frozenset({"source", "cache_control"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "cache_control", "caller"}),
    "server_tool_use": frozenset({"id", "name", "input"}),
    "tool_search_tool_result": frozenset({"tool_use_id", "content"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "cache_control"}),
}
_ROLE_BLOCKS = {
    "user": ("text", "image", "tool_result"),
    "assistant": (
        *("text", "thinking", "redacted_thinking", "tool_use"),
        *("server_tool_use", "tool_search_tool_result"),
    ),
}
_THINKING = ("thinking", "redacted_thinking")
_TOOL_SEARCH = "tool_search_tool_"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MARKS = 4
_LOOKBACK = 20
"""Blocks before a cache mark that are searched for an earlier cache entry."""
_LARGEST_IMAGE = 5 << 20
_DOCUMENTATION = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
_STARTS_WITHOUT_THINKING = (
    "Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a final `assistant` "
    "message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). "
    "We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. "
    + _DOCUMENTATION
)
_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)
_STOPS = {"length": "max_tokens", "content_filter": "refusal"}


@dataclass(slots=True)
class _Block:
    """One block in the order of the cache: tools, system, messages."""

    text: str
    mark: str = ""
    """Its cache mark's lifetime: 5m or 1h."""


@dataclass(slots=True)
class _Cache:
    """Prefixes that a cache mark has written."""

    written: set[str] = field(default_factory=set[str])

    def use(self, blocks: list[_Block], minimum: int) -> tuple[int, dict[str, int]]:
        """Tokens read from the cache, and those written, by lifetime."""
        prefixes, tokens, prefix = list[str](), list[int](), ""
        for block in blocks:
            prefix += block.text + "\0"
            prefixes.append(prefix)
            tokens.append(token_count(prefix))
        marks = [
            index for index, block in enumerate(blocks) if block.mark and tokens[index] >= minimum
        ]
        read = 0
        for mark in reversed(marks):
            hits = [
                at
                for at in range(mark, max(-1, mark - _LOOKBACK - 1), -1)
                if prefixes[at] in self.written
            ]
            if hits:
                read = tokens[hits[0]]
                break
        written = {"5m": 0, "1h": 0}
        counted = read
        for mark in marks:
            self.written.add(prefixes[mark])
            if tokens[mark] > counted:
                written[blocks[mark].mark] += tokens[mark] - counted
                counted = tokens[mark]
        return read, written


class AnthropicMessages(Emulator):
    """`POST /v1/messages`."""

    key_header = "x-api-key"
    models: ClassVar[Mapping[str, Model]] = {
        "claude-haiku-4-5": Model(200_000, 64_000, "budget", cache_minimum=4096),
        "claude-opus-4-1": Model(200_000, 32_000, "budget"),
        "claude-sonnet-4-5": Model(200_000, 64_000, "budget"),
        "claude-sonnet-4-6": Model(
            1_000_000, 128_000, "adaptive", ("low", "medium", "high", "max")
        ),
        "claude-opus-4-7": Model(
            1_000_000, 128_000, "adaptive", ("low", "medium", "high", "xhigh", "max"), 4096
        ),
    }
    rejects_sum: ClassVar[frozenset[str]] = frozenset({"claude-opus-4-1"})
    """Models that reject a request whose input and max_tokens together exceed the context; newer ones stop there."""
    rejects_sampling: ClassVar[frozenset[str]] = frozenset({"claude-opus-4-7"})

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        super().__init__(models)
        self._thoughts: dict[str, list[Body]] = {}
        """The thinking blocks of the reply that a tool_use ID came in."""
        self._cache = _Cache()
        self._blocks: list[_Block] = []

    def unknown_model(self, name: str) -> str:
        return f"model: {name}"

    # -- the request

    def read(self, path: str, body: Body) -> Prompt:
        if path.partition("?")[0] != "/v1/messages":
            raise Rejected("Not Found", status=404, kind="not_found_error")
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                raise Rejected(f"{name}: Field required")
        for name in body:
            if name not in _FIELDS:
                raise Rejected(f"{name}: Extra inputs are not permitted")
        model = self.model(body["model"])
        self._check_limits(body, model)
        thinks = self._check_thinking(body, model)
        tools = self._check_tools(body, thinks=thinks)
        messages: list[Body] = body["messages"]
        self._check_roles(messages)
        for index, message in enumerate(messages):
            for place, block in enumerate(_blocks_of(message)):
                self._check_block(f"messages.{index}.content.{place}", message["role"], block)
        self._check_calls(messages, bool(tools))
        self._check_searches(messages, tools)
        self._check_thoughts(messages, thinks=thinks)
        blocks = _cache_blocks(body)
        self._check_marks(blocks)
        total = sum(token_count(block.text) for block in blocks)
        if total > model.context:
            raise Rejected(f"prompt is too long: {total} tokens > {model.context} maximum")
        limit: int = body["max_tokens"]
        if body["model"] in self.rejects_sum and total + limit > model.context:
            raise Rejected(
                f"input length and `max_tokens` exceed context limit: {total} + {limit} > {model.context}, "
                "decrease input length or `max_tokens` and try again"
            )
        self._blocks = blocks
        return Prompt(
            number=self.next_number,
            body=body,
            model=body["model"],
            tools=tools,
            messages=merged(_prompt_messages(body)),
            max_output_tokens=max(1, min(limit, model.context - total)),
            is_reasoning=thinks,
        )

    def _check_limits(self, body: Body, model: Model) -> None:
        limit = body["max_tokens"]
        if not isinstance(limit, int) or limit < 1:
            raise Rejected("max_tokens: Input should be greater than or equal to 1")
        if limit > model.max_output:
            raise Rejected(
                f"max_tokens: {limit} > {model.max_output}, which is the maximum allowed number of output tokens "
                f"for {body['model']}"
            )
        if body["model"] in self.rejects_sampling:
            for name in ("temperature", "top_p", "top_k"):
                if name in body:
                    raise Rejected(f"`{name}` is deprecated for this model.")

    def _check_thinking(self, body: Body, model: Model) -> bool:
        thinking = section(body, "thinking")
        kind = thinking.get("type", "disabled")
        effort = section(body, "output_config").get("effort")
        if effort is not None and effort not in model.efforts:
            raise Rejected("This model does not support the effort parameter.")
        if kind == "disabled":
            return False
        if model.reasoning == "none" or (kind == "adaptive" and model.reasoning != "adaptive"):
            raise Rejected(f"{kind} thinking is not supported on this model")
        if kind == "enabled":
            if body["model"] in self.rejects_sampling:
                raise Rejected(
                    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
                    '"output_config.effort" to control thinking behavior.'
                )
            budget = thinking.get("budget_tokens")
            if not isinstance(budget, int):
                raise Rejected("thinking.enabled.budget_tokens: Field required")
            if budget < 1024:
                raise Rejected(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
                )
            if body["max_tokens"] <= budget:
                raise Rejected(
                    f"`max_tokens` must be greater than `thinking.budget_tokens`. {_DOCUMENTATION}"
                )
        if body.get("temperature", 1) != 1:
            raise Rejected(
                f"`temperature` may only be set to 1 when thinking is enabled. {_DOCUMENTATION}"
            )
        if "top_k" in body:
            raise Rejected(f"`top_k` must be unset when thinking is enabled. {_DOCUMENTATION}")
        return True

    def _check_tools(self, body: Body, *, thinks: bool) -> tuple[str, ...]:
        tools = entries(body, "tools")
        names = [tool["name"] for tool in tools]
        if tools and all(tool.get("defer_loading") for tool in tools):
            raise Rejected(
                "At least one tool must have defer_loading=false. All tools cannot be deferred."
            )
        for index, tool in enumerate(tools):
            if tool.get("type", "").startswith(_TOOL_SEARCH):
                continue
            if tool.get("defer_loading") and tool.get("cache_control"):
                raise Rejected(
                    f"Tool '{tool['name']}' cannot have both defer_loading=true and cache_control set. Tools with "
                    "defer_loading cannot use prompt caching."
                )
            if not _TOOL_NAME.fullmatch(tool["name"]):
                raise Rejected(
                    f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                )
            schema = tool.get("input_schema")
            if not is_body(schema):
                raise Rejected(f"tools.{index}.custom.input_schema: Field required")
            if schema.get("type") != "object":
                raise Rejected(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        if len(set(names)) < len(names):
            raise Rejected("tools: Tool names must be unique.")
        choice = body.get("tool_choice") or {"type": "auto"}
        if "tool_choice" in body and not tools:
            raise Rejected("tool_choice: tool_choice may only be specified while providing tools")
        if choice["type"] in ("any", "tool") and thinks:
            raise Rejected("Thinking may not be enabled when tool_choice forces tool use.")
        if choice["type"] == "tool" and choice.get("name") not in names:
            raise Rejected(f"Tool '{choice.get('name')}' not found in provided tools")
        return tuple(names)

    def _check_roles(self, messages: list[Body]) -> None:
        if not messages:
            raise Rejected("messages: at least one message is required")
        for index, message in enumerate(messages):
            role = message["role"]
            if role == "system":
                raise Rejected(
                    'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
                    'not "system" as an input message role.'
                )
            if role not in _ROLE_BLOCKS:
                raise Rejected(f"messages.{index}.role: Input should be 'user' or 'assistant'")
            if not message["content"] and index < len(messages) - 1:
                raise Rejected(
                    f"messages.{index}: all messages must have non-empty content except for the optional final "
                    "assistant message"
                )
            if index and role == messages[index - 1]["role"]:
                raise Rejected(
                    'messages: roles must alternate between "user" and "assistant", but found multiple '
                    f'"{role}" roles in a row'
                )
        if messages[0]["role"] != "user":
            raise Rejected('messages: first message must use the "user" role')
        if messages[-1]["role"] == "assistant":
            texts = [block["text"] for block in _blocks_of(messages[-1]) if block["type"] == "text"]
            if texts and texts[-1] != texts[-1].rstrip():
                raise Rejected(
                    "messages: final assistant content cannot end with trailing whitespace"
                )

    def _check_block(self, place: str, role: str, block: Body) -> None:
        kind = block["type"]
        if kind not in _ROLE_BLOCKS[role]:
            raise Rejected(
                f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
                + ", ".join(f"'{name}'" for name in _ROLE_BLOCKS[role])
            )
        for name in block:
            if name != "type" and name not in _BLOCK_FIELDS[kind]:
                raise Rejected(f"{place}.{kind}.{name}: Extra inputs are not permitted")
        if kind == "text" and not block["text"]:
            raise Rejected("messages: text content blocks must be non-empty")
        if kind == "text" and not block["text"].strip():
            raise Rejected("messages: text content blocks must contain non-whitespace text")
        if kind == "image":
            _check_image(f"{place}.image", block["source"])
        if kind == "tool_use":
            if not _TOOL_ID.fullmatch(block["id"]):
                raise Rejected(
                    f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                )
            if not _TOOL_NAME.fullmatch(block["name"]):
                raise Rejected(
                    f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                )
            if not isinstance(block["input"], dict):
                raise Rejected(f"{place}.tool_use.input: Input should be a valid dictionary")
        if kind == "tool_result":
            for inner, part in enumerate(_blocks_of(block, "content")):
                if part["type"] not in ("text", "image"):
                    raise Rejected(
                        f"{place}.tool_result.content.{inner}: Input tag '{part['type']}' is not expected"
                    )
                if part["type"] == "image":
                    _check_image(f"{place}.tool_result.content.{inner}.image", part["source"])
        if kind == "thinking" and not self.is_signed(
            block.get("signature"), "thinking", block["thinking"]
        ):
            raise Rejected(f"{place}: Invalid `signature` in `thinking` block")
        if kind == "redacted_thinking":
            signature, _, text = str(block["data"]).partition(".")
            if not self.is_signed(signature, "redacted", text):
                raise Rejected(f"{place}: Invalid `data` in `redacted_thinking` block")

    def _check_calls(self, messages: list[Body], has_tools: bool) -> None:
        """Each assistant message's calls are answered by the next message, first, once each, and nothing else is."""
        used: set[str] = set()
        for index, message in enumerate(messages):
            blocks = _blocks_of(message)
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if calls and not has_tools:
                raise Rejected(
                    "Requests which include `tool_use` or `tool_result` blocks must define tools"
                )
            for place, block in enumerate(blocks):
                if block["type"] == "tool_use" and block["id"] in used:
                    raise Rejected(
                        f"messages.{index}.content.{place}: `tool_use` ids must be unique"
                    )
                if block["type"] == "tool_use":
                    used.add(block["id"])
            previous = _blocks_of(messages[index - 1]) if index else []
            expected = [block["id"] for block in previous if block["type"] == "tool_use"]
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            for place, block in enumerate(blocks):
                if block["type"] != "tool_result":
                    continue
                if block["tool_use_id"] not in expected:
                    raise Rejected(
                        f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` "
                        "block in the previous message."
                    )
                if results.count(block["tool_use_id"]) > 1:
                    raise Rejected(
                        f"messages.{index}.content.{place}: each tool_use must have a single result. Found multiple "
                        f"`tool_result` blocks with id: {block['tool_use_id']}"
                    )
            first = [block["type"] for block in blocks[: len(expected)]]
            missing = [identifier for identifier in expected if identifier not in results]
            if missing or (expected and first != ["tool_result"] * len(expected)):
                _raise_unanswered(index - 1, missing or expected)
        last = [block["id"] for block in _blocks_of(messages[-1]) if block["type"] == "tool_use"]
        if last:
            _raise_unanswered(len(messages) - 1, last)

    def _check_searches(self, messages: list[Body], tools: tuple[str, ...]) -> None:
        """Each search's result follows it, and names only tools of this request."""
        for index, message in enumerate(messages):
            blocks = _blocks_of(message)
            for place, block in enumerate(blocks):
                previous = blocks[place - 1] if place else {}
                if block["type"] == "tool_search_tool_result":
                    if previous.get("id") != block["tool_use_id"]:
                        raise Rejected(
                            f"messages.{index}.content.{place}: unexpected `tool_use_id` found in "
                            f"`tool_search_tool_result` blocks: {block['tool_use_id']}."
                        )
                    for reference in entries(block["content"], "tool_references"):
                        if reference["tool_name"] not in tools:
                            raise Rejected(
                                f"Tool reference '{reference['tool_name']}' not found in available tools"
                            )
                elif previous.get("type") == "server_tool_use":
                    raise Rejected(
                        f"messages.{index}: `server_tool_use` ids were found without a result block: {previous['id']}."
                    )

    def _check_thoughts(self, messages: list[Body], *, thinks: bool) -> None:
        """In the current turn, the thinking blocks of each reply stand where they stood, and the first one begins."""
        start = max(
            (
                index
                for index, message in enumerate(messages)
                if message["role"] == "user"
                and all(item["type"] != "tool_result" for item in _blocks_of(message))
            ),
            default=0,
        )
        turn = [
            (index, item)
            for index, item in enumerate(messages)
            if index > start and item["role"] == "assistant"
        ]
        if not thinks:
            if turn and turn[-1][0] == len(messages) - 1:
                for place, block in enumerate(_blocks_of(turn[-1][1])):
                    if block["type"] in _THINKING:
                        raise Rejected(
                            f"messages.{turn[-1][0]}.content.{place}.type: When `thinking` is disabled, an `assistant` "
                            f"message in the final position cannot contain `{block['type']}`. To use thinking "
                            "blocks, enable `thinking` in your request."
                        )
            return
        for position, (index, message) in enumerate(turn):
            blocks = _blocks_of(message)
            if position == 0 and blocks[0]["type"] not in _THINKING:
                adaptive_without = any(
                    self._thoughts.get(item.get("id", "")) == [] for item in blocks
                )
                if not adaptive_without:
                    text = _STARTS_WITHOUT_THINKING.format(found=blocks[0]["type"])
                    raise Rejected(f"messages.{index}.content.0.type: {text}")
            thoughts = [_plain(block) for block in blocks if block["type"] in _THINKING]
            for block in blocks:
                issued = self._thoughts.get(block.get("id", ""))
                if issued is not None and issued != thoughts:
                    raise Rejected(f"messages.{index}.content.0: {_MODIFIED}")

    def _check_marks(self, blocks: list[_Block]) -> None:
        marks = [block.mark for block in blocks if block.mark]
        if len(marks) > _MARKS:
            raise Rejected(
                f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
            )
        if "5m" in marks and "1h" in marks[marks.index("5m") :]:
            raise Rejected(
                "cache_control: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
                "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            )

    # -- the answer

    def count(self, path: str, body: Body) -> Body | None:
        if path.partition("?")[0] != "/v1/messages/count_tokens":
            return None
        if "max_tokens" in body or "stream" in body:
            raise Rejected("max_tokens: Extra inputs are not permitted")
        self.read("/v1/messages", {**body, "max_tokens": 1024})
        return {"input_tokens": sum(token_count(block.text) for block in self._blocks)}

    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        read, written = self._cache.use(self._blocks, self.known_models[prompt.model].cache_minimum)
        total = sum(token_count(block.text) for block in self._blocks)
        created = sum(written.values())
        return {
            "input_tokens": max(0, total - read - created),
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written["5m"],
                "ephemeral_1h_input_tokens": written["1h"],
            },
            "output_tokens": output_tokens(reply)[0],
            "service_tier": "standard",
        }

    def message(self, prompt: Prompt, reply: Reply, usage: Body) -> Body:
        content: list[Body] = []
        for index, part in enumerate(reply.parts):
            match part:
                case Text(text):
                    content.append({"type": "text", "text": text})
                case Reasoning(text, redacted=True):
                    hidden = base64.b64encode(text.encode()).decode()
                    content.append(
                        {
                            "type": "redacted_thinking",
                            "data": f"{self.sign('redacted', hidden)}.{hidden}",
                        }
                    )
                case Reasoning(text):
                    content.append(
                        {
                            "type": "thinking",
                            "thinking": text,
                            "signature": self.sign("thinking", text),
                        }
                    )
                case ToolCall(name, arguments, id=given):
                    identifier = given or self.identifier("toolu_", prompt.number, index)
                    content.append(
                        {
                            "type": "tool_use",
                            "id": identifier,
                            "name": name,
                            "input": dict(arguments),
                        }
                    )
                case ToolSearch(query, names):
                    search = self.identifier("srvtoolu_", prompt.number, index)
                    kind = next(
                        tool["name"]
                        for tool in entries(prompt.body, "tools")
                        if tool.get("type", "").startswith(_TOOL_SEARCH)
                    )
                    references = [{"type": "tool_reference", "tool_name": name} for name in names]
                    result = {
                        "type": "tool_search_tool_search_result",
                        "tool_references": references,
                    }
                    content += [
                        {
                            "type": "server_tool_use",
                            "id": search,
                            "name": kind,
                            "input": {"query": query},
                        },
                        {
                            "type": "tool_search_tool_result",
                            "tool_use_id": search,
                            "content": result,
                        },
                    ]
                case other:
                    content.append(dict(other.fields))
        thoughts = [_plain(block) for block in content if block["type"] in _THINKING]
        for block in content:
            if block["type"] == "tool_use":
                self._thoughts[block["id"]] = thoughts
        stop = "tool_use" if reply.calls else "end_turn"
        return {
            "id": self.identifier("msg_", prompt.number),
            "type": "message",
            "role": "assistant",
            "model": prompt.model,
            "content": content,
            "stop_reason": _STOPS.get(reply.finish, reply.finish) if reply.finish else stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def events(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[Body]:
        usage = message["usage"]
        start: Body = {
            **message,
            "content": [],
            "stop_reason": None,
            "usage": {**usage, "output_tokens": 1},
        }
        yield {"type": "message_start", "message": start}
        yield {"type": "ping"}
        for index, block in enumerate(message["content"]):
            beginning, deltas = _streamed(block)
            yield {"type": "content_block_start", "index": index, "content_block": beginning}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {
            "type": "message_delta",
            "delta": delta,
            "usage": {"output_tokens": usage["output_tokens"]},
        }
        yield {"type": "message_stop"}

    def event_text(self, event: Body) -> str:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

    def is_reasoning_event(self, event: Body) -> bool:
        return event.get("delta", {}).get("type") == "thinking_delta"

    def error(self, rejected: Rejected) -> Body:
        kinds = {"server_error": "api_error", "": "invalid_request_error"}
        kind = kinds.get(rejected.kind, rejected.kind)
        return {
            "type": "error",
            "error": {"type": kind, "message": rejected.message},
            "request_id": "req_1",
        }

    def error_event(self) -> Body:
        return {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def _streamed(block: Body) -> tuple[Body, list[Body]]:
    """How a block begins in a stream, and its deltas."""
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            return {"type": "text", "text": ""}, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use" | "server_tool_use":
            arguments = json.dumps(block["input"]) if block["input"] else ""
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ("", *pieces(arguments))
            ]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


def _blocks_of(message: Body, name: str = "content") -> list[Body]:
    content: Any = message.get(name) or []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if is_entries(content) else []


def _plain(block: Body) -> Body:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _raise_unanswered(index: int, identifiers: list[str]) -> None:
    raise Rejected(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(identifiers)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def _check_image(place: str, source: Body) -> None:
    if source["type"] != "base64":
        raise Rejected(f"{place}.source: only base64 images are emulated")
    kind = source["media_type"]
    if kind not in IMAGE_TYPES:
        raise Rejected(
            f"{place}.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        )
    data = decoded(source["data"])
    actual = sniffed_type(data) if data else None
    if actual is None:
        raise Rejected(f"{place}.source.base64.data: Could not process image")
    if actual != kind:
        raise Rejected(
            f"{place}.source.base64: The image was specified using the {kind} media type, but the image appears to "
            f"be a {actual} image"
        )
    if len(source["data"]) > _LARGEST_IMAGE:
        raise Rejected(
            f"{place}.source.base64: image exceeds 5 MB maximum: {len(source['data'])} bytes > {_LARGEST_IMAGE} bytes"
        )


def _cache_blocks(body: Body) -> list[_Block]:
    """Everything that is read, in the order of the cache."""
    blocks = [_block(tool) for tool in entries(body, "tools") if not tool.get("defer_loading")]
    blocks += [_block(block) for block in _blocks_of(body, "system")]
    blocks.append(
        _Block(canonical([body.get("thinking"), body.get("tool_choice")]))
    )  # which void the messages' cache
    for message in body["messages"]:
        blocks += [_block(block, message["role"]) for block in _blocks_of(message)]
    if mark := body.get("cache_control"):
        blocks[-1].mark = mark.get("ttl", "5m")
    return blocks


def _block(block: Body, role: str = "") -> _Block:
    marks = [
        item["cache_control"] for item in (block, *_blocks_of(block)) if item.get("cache_control")
    ]
    return _Block(
        role + canonical(_without_images(block)), marks[0].get("ttl", "5m") if marks else ""
    )


def _without_images(value: Any) -> Any:
    """A block without cache marks, with images as texts of their size in tokens."""
    if is_entries(value):
        return [_without_images(item) for item in value]
    if not is_body(value):
        return value
    if value.get("type") == "image":
        return padded(IMAGE_TOKENS, value["source"]["data"])
    if value.get("type") == "tool_result":  # a text is the same as a list of one text block
        value = {**value, "content": _blocks_of(value)}
    return {name: _without_images(item) for name, item in value.items() if name != "cache_control"}


def _prompt_messages(body: Body) -> Iterator[PromptMessage]:
    system = "".join(block["text"] for block in _blocks_of(body, "system"))
    if system:
        yield PromptMessage("system", system)
    for message in body["messages"]:
        blocks = _blocks_of(message)
        results = tuple(
            (item["tool_use_id"], _text(item)) for item in blocks if item["type"] == "tool_result"
        )
        if results:
            images = sum(len(_images(item)) for item in blocks if item["type"] == "tool_result")
            yield PromptMessage("tool", results=results, images=images)
        text = "".join(item["text"] for item in blocks if item["type"] == "text")
        calls = tuple(
            (item["id"], item["name"], item["input"])
            for item in blocks
            if item["type"] == "tool_use"
        )
        if text or calls or not results:
            yield PromptMessage(
                message["role"], text, sum(item["type"] == "image" for item in blocks), calls
            )


def _text(block: Body) -> str:
    return "".join(part["text"] for part in _blocks_of(block) if part["type"] == "text")


def _images(block: Body) -> list[Body]:
    return [part for part in _blocks_of(block) if part["type"] == "image"]
