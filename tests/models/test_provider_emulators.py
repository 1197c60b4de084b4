"""Emulated providers: they accept a correct client through litellm, and each rule rejects its violation."""

import base64
import json
import urllib.error
import urllib.request
from copy import deepcopy

import pytest
from providers import (
    AnthropicMessages,
    Failure,
    GeminiContent,
    Model,
    OpenAIChat,
    OpenAIResponses,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolSearch,
    Unknown,
)
from providers.litellm_client import LitellmClient

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + b"\0" * 40).decode()
RENAMED = base64.b64encode(b"just text").decode()
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "read_file", "description": "Reads.", "parameters": SCHEMA},
    }
]
LONG = "You are careful. " * 1500
STEPS = 5


@pytest.fixture(scope="module")
def litellm():
    with LitellmClient() as client:
        yield client


class Conversation:
    """A client that follows every rule."""

    def __init__(self, litellm, emulator, provider, **arguments):
        self.litellm, self.emulator = litellm, emulator
        self.arguments = {
            "api_base": emulator.base_url,
            "tools": TOOLS,
            "max_tokens": 16_000,
        } | arguments
        self.provider = provider
        self.messages = [{"role": "system", "content": LONG}]

    def say(self, text, image=None):
        content = [{"type": "text", "text": text}]
        if image:
            content.append(
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
            )
        self.messages.append({"role": "user", "content": content})
        return self.go_on()

    def go_on(self):
        answer = self.litellm.ask(messages=self.messages, **self.arguments)
        assert "error" not in answer, answer
        message = answer["message"]
        if self.provider in ("gemini", "openai"):
            message.pop("reasoning_content", None)
        self.messages.append(message)
        for call in message.get("tool_calls", ()):
            if call["id"].startswith("srvtoolu_"):  # a search, which Anthropic runs itself
                continue
            path = json.loads(call["function"]["arguments"])["path"]
            self.messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": f"text of {path}"}
            )
        return answer

    def work(self, text, image=None):
        """Send a message and continue until there are no more calls."""
        answers = [self.say(text, image)]
        while answers[-1]["message"].get("tool_calls"):
            answers.append(self.go_on())
        return answers


def marked(messages):
    """The messages with the system text and the last message marked for Anthropic's cache."""
    messages = deepcopy(messages)
    messages[0]["content"] = [
        {"type": "text", "text": messages[0]["content"], "cache_control": {"type": "ephemeral"}}
    ]
    last = messages[-1]
    content = (
        last["content"]
        if isinstance(last["content"], list)
        else [{"type": "text", "text": last["content"]}]
    )
    content[-1]["cache_control"] = {"type": "ephemeral"}
    last["content"] = content
    return messages


class MarkedConversation(Conversation):
    def go_on(self):
        plain = self.messages
        self.messages = marked(plain)
        answer = super().go_on()
        self.messages = plain + self.messages[len(plain) :]
        return answer


def steps(prompt):
    """Parallel calls with reasoning in each step, then an answer composed of the results."""
    step = sum(bool(message.calls) for message in prompt.messages) % STEPS if prompt.results else 0
    if (
        prompt.results
        and sum(len(message.results) for message in prompt.messages) % (2 * STEPS) == 0
    ):
        return Reply(
            (
                Reasoning("They are all here."),
                Text(" and ".join(text for _, text in prompt.results)),
            )
        )
    calls = (
        ToolCall("read_file", {"path": f"a{step}.txt"}),
        ToolCall("read_file", {"path": f"b{step}.txt"}),
    )
    return Reply(
        (Reasoning(f"Step {step} needs two files, and this is why." * 3), Text("Reading."), *calls)
    )


PROVIDERS = {
    "openai": (OpenAIChat, Conversation, {"model": "openai/gpt-5-mini", "prompt_cache_key": "s"}),
    "responses": (
        OpenAIResponses,
        Conversation,
        {
            "model": "openai/responses/gpt-5.4",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning_effort": {"effort": "high", "summary": "auto"},
        },
    ),
    "anthropic": (
        AnthropicMessages,
        MarkedConversation,
        {"model": "anthropic/claude-sonnet-4-5", "reasoning_effort": "high"},
    ),
    "anthropic-adaptive": (
        AnthropicMessages,
        MarkedConversation,
        {"model": "anthropic/claude-opus-4-7", "reasoning_effort": "high"},
    ),
    "gemini": (
        GeminiContent,
        Conversation,
        {"model": "gemini/gemini-3.1-pro-preview", "reasoning_effort": "high"},
    ),
    "gemini-old": (
        GeminiContent,
        Conversation,
        {"model": "gemini/gemini-2.5-pro", "reasoning_effort": "high"},
    ),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_correct_conversation_passes_and_is_cached(litellm, provider):
    emulate, converse, arguments = PROVIDERS[provider]
    with emulate() as emulator:
        emulator.script(steps)
        conversation = converse(litellm, emulator, provider.partition("-")[0], **arguments)
        first = conversation.work("Read the files.", PNG)
        second = conversation.work("And again.")
        assert emulator.rejections == []
        assert [len(first), len(second)] == [STEPS + 1, STEPS + 1]
        assert (
            first[-1]["message"]["content"]
            == f"text of a{STEPS - 1}.txt and text of b{STEPS - 1}.txt"
        )
        assert [answer["finish"] for answer in first] == ["tool_calls"] * STEPS + ["stop"]
        usages = [answer["usage"] for answer in [*first, *second]]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] or 0 for usage in usages]
        assert not cached[0]
        previous = [usage["prompt_tokens"] for usage in usages[:-1]]
        assert all(count > 0.9 * tokens for count, tokens in zip(cached[1:], previous, strict=True))
        assert all(
            count <= usage["prompt_tokens"] for count, usage in zip(cached, usages, strict=True)
        )
        assert all(usage["completion_tokens_details"]["reasoning_tokens"] > 0 for usage in usages)


DEFERRED = {
    "type": "function",
    "function": {"name": "web_fetch", "parameters": SCHEMA},
    "defer_loading": True,
}
SEARCHES = {
    "anthropic": {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
    "responses": {"type": "tool_search"},
}


@pytest.mark.parametrize("provider", SEARCHES)
def test_the_providers_search_loads_deferred_tools(litellm, provider):
    emulate, converse, arguments = PROVIDERS[provider]
    with emulate() as emulator:
        search = Reply(
            (
                Reasoning("I need the web."),
                ToolSearch("web", ("web_fetch",)),
                ToolCall("web_fetch", {"path": "x"}),
            )
        )
        emulator.script([search, Reply((Text("Fetched."),)), Reply((Text("Bye."),))])
        conversation = converse(
            litellm, emulator, provider, **arguments, tools=[SEARCHES[provider], *TOOLS, DEFERRED]
        )
        assert conversation.work("Fetch x.")[-1]["message"]["content"] == "Fetched."
        assert conversation.work("Bye.")[-1]["message"]["content"] == "Bye."
        assert emulator.rejections == []
        assert "tool_search" in json.dumps(
            emulator.requests[1].get("input") or emulator.requests[1]["messages"]
        )


def test_reasoning_text_must_be_sent_back(litellm):
    with OpenAIChat(reasoning_field="reasoning_content") as emulator:
        emulator.script(steps)
        conversation = Conversation(litellm, emulator, "deepseek", model="deepseek/gpt-4.1-mini")
        conversation.say("Read the files.")
        sent = [message for message in conversation.messages if message["role"] == "assistant"]
        assert sent[0].pop("reasoning_content").startswith("Step 0")
        answer = litellm.ask(messages=conversation.messages, **conversation.arguments)
        assert "must be passed back" in answer["error"]["message"]


# -- one violation per rule, sent without litellm


def post(emulator, path, body):
    headers = {"Content-Type": "application/json", emulator.key_header: "key"}
    request = urllib.request.Request(emulator.address + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def stream(emulator, path, body, limit=None):
    """The text of a stream, or its first `limit` bytes."""
    headers = {"Content-Type": "application/json", emulator.key_header: "key"}
    request = urllib.request.Request(emulator.address + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read(limit).decode()


TWO_CALLS = Reply(
    (
        Reasoning("Two files are needed."),
        Text("Reading."),
        ToolCall("read_file", {"path": "a"}),
        ToolCall("read_file", {"path": "b"}),
    )
)
SMALL = Model(2_000, 1_000, "effort", ("low",))


def chat_history(emulator):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    question = {"role": "user", "content": [{"type": "text", "text": "Read."}, image]}
    body = {
        "model": "gpt-5-mini",
        "messages": [question],
        "tools": deepcopy(TOOLS),
        "max_completion_tokens": 9000,
    }
    status, answer = post(emulator, "/v1/chat/completions", body)
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "text"}
        for call in message["tool_calls"]
    ]
    return "/v1/chat/completions", {**body, "messages": [question, message, *results]}


def responses_history(emulator):
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    question = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Read."}, image],
    }
    tool = {"type": "function", "name": "read_file", "parameters": SCHEMA}
    body = {
        "model": "gpt-5.4",
        "input": [question],
        "tools": [tool],
        "max_output_tokens": 9000,
        "store": False,
    }
    body |= {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"}}
    status, answer = post(emulator, "/v1/responses", body)
    assert status == 200, answer
    calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call, "output": "text"} for call in calls
    ]
    for item in answer["output"]:
        if item["type"] == "message":
            item["content"] = [{"type": "output_text", "text": "Reading."}]
    return "/v1/responses", {**body, "input": [question, *answer["output"], *results]}


def anthropic_history(emulator):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    question = {"role": "user", "content": [{"type": "text", "text": "Read."}, image]}
    body = {"model": "claude-sonnet-4-5", "messages": [question], "max_tokens": 9000}
    body |= {"tools": [{"name": "read_file", "input_schema": SCHEMA}]}
    body |= {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    status, answer = post(emulator, "/v1/messages", body)
    assert status == 200, answer
    calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call, "content": "text"} for call in calls]
    reply = {"role": "assistant", "content": answer["content"]}
    return "/v1/messages", {
        **body,
        "messages": [question, reply, {"role": "user", "content": results}],
    }


def gemini_history(emulator):
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    question = {"role": "user", "parts": [{"text": "Read."}, image]}
    body = {"contents": [question], "generationConfig": {"maxOutputTokens": 9000}}
    body |= {"tools": [{"functionDeclarations": [{"name": "read_file", "parameters": SCHEMA}]}]}
    path = "/v1beta/models/gemini-3.1-pro-preview:generateContent"
    status, answer = post(emulator, path, body)
    assert status == 200, answer
    reply = answer["candidates"][0]["content"]
    calls = [part["functionCall"] for part in reply["parts"] if "functionCall" in part]
    response = {"content": "text"}
    results = [
        {"functionResponse": {"name": call["name"], "id": call["id"], "response": response}}
        for call in calls
    ]
    return path, {**body, "contents": [question, reply, {"role": "user", "parts": results}]}


HISTORIES = {
    OpenAIChat: chat_history,
    OpenAIResponses: responses_history,
    AnthropicMessages: anthropic_history,
    GeminiContent: gemini_history,
}


@pytest.mark.parametrize("emulate", HISTORIES)
def test_a_correct_history_is_accepted(emulate):
    with emulate() as emulator:
        emulator.script([TWO_CALLS, Reply((Text("Done."),))])
        status, answer = post(emulator, *HISTORIES[emulate](emulator))
        assert (status, emulator.rejections) == (200, []), answer


def parent_of(body, path):
    """The container of the last name of a path, and that name."""
    *parents, last = path
    for name in parents:
        body = body[name]
    return body, last


def put(*path_and_value):
    """A mutation that sets the value at a path; the last argument is the value."""
    *path, value = path_and_value

    def mutate(body):
        container, name = parent_of(body, path)
        container[name] = value

    return mutate


def drop(*path):
    def mutate(body):
        container, name = parent_of(body, path)
        del container[name]

    return mutate


def swap(*path):
    *path, second = path

    def mutate(body):
        container, first = parent_of(body, path)
        container[first], container[second] = container[second], container[first]

    return mutate


def insert(*path_and_value):
    *path, value = path_and_value

    def mutate(body):
        container, index = parent_of(body, path)
        container.insert(index, value)

    return mutate


def repeat(*path):
    def mutate(body):
        container, index = parent_of(body, path)
        container.insert(index, deepcopy(container[index]))

    return mutate


def each(*mutations):
    def mutate(body):
        for mutation in mutations:
            mutation(body)

    return mutate


def copy_id(*path):
    """Give the second of two calls the ID of the first."""

    def mutate(body):
        calls, name = parent_of(body, (*path[:-1], -1, path[-1]))
        calls[name] = parent_of(body, (*path[:-1], -2, path[-1]))[0][name]

    return mutate


def split_results(body):
    """Send the results of one assistant message in two user messages."""
    last = body["messages"][-1]
    body["messages"] += [
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [last["content"].pop()]},
    ]


USER = {"role": "user", "content": "More."}
USER_SAYS_GO = {"role": "user", "content": "Go."}
LONG_ID = "call_" + "x" * 60
WORDS = "word " * 2_000
MARK = {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral"}}
HOUR = {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
IMAGE = ("messages", 0, "content", 1)
CALLS = ("messages", 1, "tool_calls")
BLOCKS = ("messages", 1, "content")
RESULTS = ("messages", 2, "content")
SOURCE = (*IMAGE, "source")
DECLARATION = ("tools", 0, "functionDeclarations", 0)
REPLY = ("contents", 1, "parts")
RESPONSES = ("contents", 2, "parts")
INLINE = ("contents", 0, "parts", 1, "inlineData")

VIOLATIONS = [
    # OpenAI chat
    (
        OpenAIChat,
        "orphan",
        drop("messages", 1),
        "must be a response to a preceeding message with 'tool_calls'",
    ),
    (OpenAIChat, "missing result", drop("messages", 3), "did not have response messages: call_"),
    (
        OpenAIChat,
        "result later",
        insert("messages", 3, USER),
        "did not have response messages: call_",
    ),
    (
        OpenAIChat,
        "result before call",
        swap("messages", 1, 2),
        "must be a response to a preceeding message",
    ),
    (OpenAIChat, "two results", repeat("messages", 3), "Duplicate value for 'tool_call_id'"),
    (
        OpenAIChat,
        "unknown id",
        put("messages", 3, "tool_call_id", "call_other"),
        "Unknown 'tool_call_id'",
    ),
    (OpenAIChat, "one id twice", copy_id(*CALLS, "id"), "Duplicate 'id'"),
    (OpenAIChat, "long id", put(*CALLS, 0, "id", LONG_ID), "maximum length 40"),
    (
        OpenAIChat,
        "role",
        put("messages", 0, "role", "person"),
        "Supported values are: 'system', 'assistant'",
    ),
    (OpenAIChat, "no content", put("messages", 0, "content", None), "expected a string, got null"),
    (
        OpenAIChat,
        "foreign field",
        put("messages", 1, "reasoning_content", "x"),
        "Unknown parameter: 'messages[1].",
    ),
    (
        OpenAIChat,
        "tool name",
        put("tools", 0, "function", "name", "files.read"),
        "does not match pattern",
    ),
    (
        OpenAIChat,
        "call name",
        put(*CALLS, 0, "function", "name", "files.read"),
        "does not match pattern",
    ),
    (OpenAIChat, "long name", put("tools", 0, "function", "name", "x" * 65), "maximum length 64"),
    (
        OpenAIChat,
        "image of tool",
        put("messages", 2, "content", [CHAT_IMAGE]),
        "only allowed for messages with role",
    ),
    (
        OpenAIChat,
        "jpeg as png",
        put(*IMAGE, "image_url", "url", f"data:image/png;base64,{JPEG}"),
        "not represent a valid",
    ),
    (
        OpenAIChat,
        "text file",
        put(*IMAGE, "image_url", "url", f"data:image/png;base64,{RENAMED}"),
        "not represent a val",
    ),
    (
        OpenAIChat,
        "svg",
        put(*IMAGE, "image_url", "url", f"data:image/svg+xml;base64,{RENAMED}"),
        "Invalid MIME type",
    ),
    (OpenAIChat, "max_tokens", put("max_tokens", 100), "Use 'max_completion_tokens' instead"),
    (
        OpenAIChat,
        "too much output",
        put("max_completion_tokens", 128_001),
        "supports at most 128000 completion",
    ),
    (OpenAIChat, "temperature", put("temperature", 0.3), "'temperature' does not support 0.3"),
    (
        OpenAIChat,
        "effort",
        put("reasoning_effort", "max"),
        "does not support 'max' with this model",
    ),
    (
        OpenAIChat,
        "effort and tools",
        each(put("model", "gpt-5.4"), put("reasoning_effort", "low")),
        "use /v1/responses",
    ),
    (
        OpenAIChat,
        "forced stranger",
        put("tool_choice", {"function": {"name": "x"}}),
        "Tool choice 'x' not found",
    ),
    (
        OpenAIChat,
        "choice alone",
        each(drop("tools"), put("tool_choice", "auto")),
        "only allowed when 'tools'",
    ),
    (
        OpenAIChat,
        "too long",
        each(
            put("model", "small"),
            drop("max_completion_tokens"),
            insert("messages", 0, {"role": "user", "content": WORDS}),
        ),
        "Input tokens exceed the configured limit of 1000 tokens",
    ),
    (OpenAIChat, "model", put("model", "gpt-0"), "The model `gpt-0` does not exist"),
    # OpenAI Responses
    (
        OpenAIResponses,
        "no reasoning",
        drop("input", 1),
        "was provided without its required 'reasoning' item: 'rs_",
    ),
    (
        OpenAIResponses,
        "altered reasoning",
        put("input", 1, "encrypted_content", "x.y"),
        "could not be verified",
    ),
    (
        OpenAIResponses,
        "not stored",
        drop("input", 1, "encrypted_content"),
        "Items are not persisted when `store`",
    ),
    (
        OpenAIResponses,
        "reasoning moved",
        swap("input", 1, 4),
        "was provided without its required 'reasoning' item",
    ),
    (
        OpenAIResponses,
        "reasoning alone",
        each(*[drop("input", 2)] * 5),
        "without its required following item",
    ),
    (
        OpenAIResponses,
        "orphan",
        drop("input", 3),
        "No tool call found for function call output with call_id",
    ),
    (
        OpenAIResponses,
        "missing result",
        drop("input", 6),
        "No tool output found for function call call_",
    ),
    (
        OpenAIResponses,
        "result before call",
        swap("input", 4, 6),
        "No tool call found for function call output",
    ),
    (OpenAIResponses, "two results", repeat("input", 6), "Duplicate function call output"),
    (OpenAIResponses, "item twice", repeat("input", 1), "Duplicate item found with id rs_"),
    (OpenAIResponses, "unknown id", put("input", 6, "call_id", "call_other"), "No tool call found"),
    (
        OpenAIResponses,
        "role",
        put("input", 0, "role", "tool"),
        "Supported values are: 'assistant', 'system'",
    ),
    (
        OpenAIResponses,
        "part of user",
        put("input", 2, "content", 0, "type", "input_text"),
        "'output_text' and 'refusal'",
    ),
    (
        OpenAIResponses,
        "foreign field",
        put("input", 2, "thinking", "x"),
        "Unknown parameter: 'input[2].thinking'",
    ),
    (OpenAIResponses, "tool name", put("tools", 0, "name", "files.read"), "does not match pattern"),
    (
        OpenAIResponses,
        "jpeg as png",
        put("input", 0, "content", 1, "image_url", f"data:image/png;base64,{JPEG}"),
        "not represent a valid",
    ),
    (OpenAIResponses, "too little output", put("max_output_tokens", 5), "Expected a value >= 16"),
    (
        OpenAIResponses,
        "too much output",
        put("max_output_tokens", 128_001),
        "Expected a value <= 128000",
    ),
    (OpenAIResponses, "temperature", put("temperature", 0.3), "'temperature' does not support 0.3"),
    (
        OpenAIResponses,
        "effort",
        put("reasoning", {"effort": "minimal"}),
        "does not support 'minimal'",
    ),
    (
        OpenAIResponses,
        "deferred without search",
        put("tools", 0, "defer_loading", True),
        "require a tool_search tool",
    ),
    (
        OpenAIResponses,
        "too long",
        each(
            put("model", "small"),
            drop("reasoning"),
            drop("max_output_tokens"),
            put("instructions", WORDS),
        ),
        "exceeds the context window of this model",
    ),
    # Anthropic
    (
        AnthropicMessages,
        "no thinking",
        drop(*BLOCKS, 0),
        "Expected `thinking` or `redacted_thinking`, but found `text`",
    ),
    (
        AnthropicMessages,
        "altered thinking",
        put(*BLOCKS, 0, "thinking", "Other."),
        "Invalid `signature` in `thinking`",
    ),
    (
        AnthropicMessages,
        "altered signature",
        put(*BLOCKS, 0, "signature", "AAAA"),
        "Invalid `signature` in `thinking`",
    ),
    (AnthropicMessages, "thinking twice", repeat(*BLOCKS, 0), "cannot be modified"),
    (
        AnthropicMessages,
        "thinking later",
        swap(*BLOCKS, 0, 1),
        "Expected `thinking` or `redacted_thinking`",
    ),
    (
        AnthropicMessages,
        "stream's index",
        put(*BLOCKS, 0, "index", 0),
        "Extra inputs are not permitted",
    ),
    (
        AnthropicMessages,
        "orphan",
        put(*BLOCKS, [{"type": "text", "text": "x"}]),
        "unexpected `tool_use_id` found",
    ),
    (
        AnthropicMessages,
        "missing result",
        drop(*RESULTS, 1),
        "without `tool_result` blocks immediately after: toolu_",
    ),
    (
        AnthropicMessages,
        "no results",
        drop("messages", 2),
        "without `tool_result` blocks immediately after: toolu_",
    ),
    (
        AnthropicMessages,
        "text before results",
        insert(*RESULTS, 0, {"type": "text", "text": "x"}),
        "immediately after",
    ),
    (
        AnthropicMessages,
        "split results",
        split_results,
        "without `tool_result` blocks immediately after: toolu_",
    ),
    (
        AnthropicMessages,
        "two results",
        repeat(*RESULTS, 1),
        "each tool_use must have a single result",
    ),
    (
        AnthropicMessages,
        "unknown id",
        put(*RESULTS, 1, "tool_use_id", "toolu_other"),
        "unexpected `tool_use_id` found",
    ),
    (AnthropicMessages, "one id twice", copy_id(*BLOCKS, "id"), "`tool_use` ids must be unique"),
    (
        AnthropicMessages,
        "id",
        put(*BLOCKS, 2, "id", "call:1"),
        "should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        AnthropicMessages,
        "forced choice",
        put("tool_choice", {"type": "any"}),
        "Thinking may not be enabled when tool_choice",
    ),
    (
        AnthropicMessages,
        "temperature",
        put("temperature", 0.3),
        "may only be set to 1 when thinking is enabled",
    ),
    (
        AnthropicMessages,
        "budget",
        put("thinking", "budget_tokens", 9000),
        "must be greater than `thinking.budget_tokens`",
    ),
    (
        AnthropicMessages,
        "small budget",
        put("thinking", "budget_tokens", 500),
        "greater than or equal to 1024",
    ),
    (
        AnthropicMessages,
        "too much output",
        put("max_tokens", 64_001),
        "64001 > 64000, which is the maximum allowed",
    ),
    (
        AnthropicMessages,
        "system",
        insert("messages", 1, {"role": "system", "content": "x"}),
        'Unexpected role "system"',
    ),
    (
        AnthropicMessages,
        "role",
        put("messages", 0, "role", "tool"),
        "Input should be 'user' or 'assistant'",
    ),
    (AnthropicMessages, "twice", insert("messages", 0, USER), "roles must alternate"),
    (AnthropicMessages, "first", drop("messages", 0), 'first message must use the "user" role'),
    (
        AnthropicMessages,
        "empty text",
        put(*BLOCKS, 1, "text", ""),
        "text content blocks must be non-empty",
    ),
    (
        AnthropicMessages,
        "blank text",
        put(*BLOCKS, 1, "text", " \n"),
        "must contain non-whitespace text",
    ),
    (
        AnthropicMessages,
        "empty message",
        put("messages", 0, "content", ""),
        "must have non-empty content",
    ),
    (AnthropicMessages, "tool name", put("tools", 0, "name", "files.read"), "should match pattern"),
    (AnthropicMessages, "same name", repeat("tools", 0), "Tool names must be unique"),
    (AnthropicMessages, "no tools", drop("tools"), "must define tools"),
    (
        AnthropicMessages,
        "no schema",
        drop("tools", 0, "input_schema"),
        "input_schema: Field required",
    ),
    (
        AnthropicMessages,
        "jpeg as png",
        put(*SOURCE, "data", JPEG),
        "the image appears to be a image/jpeg image",
    ),
    (AnthropicMessages, "text file", put(*SOURCE, "data", RENAMED), "Could not process image"),
    (
        AnthropicMessages,
        "svg",
        put(*SOURCE, "media_type", "image/svg+xml"),
        "Input should be 'image/jpeg'",
    ),
    (
        AnthropicMessages,
        "image of assistant",
        insert(*BLOCKS, 1, {"type": "image"}),
        "Input tag 'image' found",
    ),
    (
        AnthropicMessages,
        "five marks",
        put("system", [MARK] * 5),
        "A maximum of 4 blocks with cache_control",
    ),
    (
        AnthropicMessages,
        "hour after minutes",
        put("system", [MARK, HOUR]),
        "must not come after a ttl='5m'",
    ),
    (
        AnthropicMessages,
        "adaptive",
        put("thinking", {"type": "adaptive"}),
        "not supported on this model",
    ),
    (
        AnthropicMessages,
        "effort",
        put("output_config", {"effort": "low"}),
        "does not support the effort parameter",
    ),
    (
        AnthropicMessages,
        "budget of adaptive",
        put("model", "claude-opus-4-7"),
        '"thinking.type.enabled" is not supported',
    ),
    (AnthropicMessages, "too long", put("system", "word " * 170_000), "tokens > 200000 maximum"),
    (
        AnthropicMessages,
        "sum",
        each(put("model", "claude-opus-4-1"), put("system", "word " * 159_000)),
        "exceed context limit",
    ),
    (AnthropicMessages, "model", put("model", "claude-0"), "model: claude-0"),
    (
        AnthropicMessages,
        "all deferred",
        put("tools", 0, "defer_loading", True),
        "All tools cannot be deferred",
    ),
    # Gemini
    (
        GeminiContent,
        "no signature",
        drop(*REPLY, 1, "thoughtSignature"),
        "missing a thought_signature",
    ),
    (
        GeminiContent,
        "skipped signature",
        put(*REPLY, 1, "thoughtSignature", "skip_thought_signature_validator"),
        "missing a thought_signature",
    ),
    (
        GeminiContent,
        "altered signature",
        put(*REPLY, 1, "thoughtSignature", "AAAA"),
        "Corrupted thought signature",
    ),
    (
        GeminiContent,
        "altered call",
        put(*REPLY, 1, "functionCall", "args", {"path": "c"}),
        "Corrupted thought signature",
    ),
    (GeminiContent, "calls swapped", swap(*REPLY, 1, 2), "does not match the function call"),
    (GeminiContent, "results swapped", swap(*RESPONSES, 0, 1), "does not match the function call"),
    (
        GeminiContent,
        "missing result",
        drop(*RESPONSES, 1),
        "number of function response parts is equal",
    ),
    (
        GeminiContent,
        "two results",
        repeat(*RESPONSES, 1),
        "number of function response parts is equal",
    ),
    (
        GeminiContent,
        "orphan",
        drop("contents", 1),
        "function response turn comes immediately after a function call",
    ),
    (
        GeminiContent,
        "unknown id",
        put(*RESPONSES, 1, "functionResponse", "id", "other"),
        "does not match the function",
    ),
    (
        GeminiContent,
        "no results",
        drop("contents", 2),
        "Please ensure that multiturn requests end with a user role",
    ),
    (
        GeminiContent,
        "call first",
        drop("contents", 0),
        "function call turn comes immediately after a user turn",
    ),
    (
        GeminiContent,
        "role",
        put("contents", 0, "role", "assistant"),
        "Please use a valid role: user, model.",
    ),
    (GeminiContent, "empty", put("contents", 0, "parts", []), "contents.parts must not be empty"),
    (GeminiContent, "unknown field", put(*REPLY, 0, "type", "text"), 'Unknown name "type"'),
    (GeminiContent, "tool name", put(*DECLARATION, "name", "2 files"), "Invalid function name"),
    (GeminiContent, "same name", repeat(*DECLARATION), "Duplicate function declaration found"),
    (
        GeminiContent,
        "image of model",
        insert(*REPLY, 0, {"inlineData": {"mimeType": "image/png", "data": PNG}}),
        "inlineData is not allowed",
    ),
    (GeminiContent, "jpeg as png", put(*INLINE, "data", JPEG), "Unable to process input image"),
    (
        GeminiContent,
        "svg",
        put(*INLINE, "mimeType", "image/svg+xml"),
        "Unsupported MIME type: image/svg+xml",
    ),
    (
        GeminiContent,
        "too much output",
        put("generationConfig", "maxOutputTokens", 65_537),
        "supported range is from 1",
    ),
    (
        GeminiContent,
        "level and budget",
        put("generationConfig", "thinkingConfig", {"thinkingLevel": "low", "thinkingBudget": 1}),
        "only one of thinking budget and thinking level",
    ),
    (
        GeminiContent,
        "level",
        put("generationConfig", "thinkingConfig", {"thinkingLevel": "minimal"}),
        "Thinking level MINIMAL is not supported",
    ),
    (
        GeminiContent,
        "too long",
        put("contents", 0, "parts", 0, "text", "word " * 850_000),
        "exceeds the maximum number of tokens allowed (1048576)",
    ),
]


@pytest.mark.parametrize(
    ("emulate", "mutate", "message"),
    [pytest.param(a, c, d, id=f"{a.__name__}: {b}") for a, b, c, d in VIOLATIONS],
)
def test_each_rule_rejects_its_violation(emulate, mutate, message):
    with emulate({"small": SMALL}) as emulator:
        emulator.script([TWO_CALLS])
        path, body = HISTORIES[emulate](emulator)
        mutate(body)
        status, answer = post(emulator, path, body)
        assert status in (400, 404), answer
        assert message in answer["error"]["message"]
        assert emulator.rejections == [answer["error"]["message"]]


# -- failures, as a client sees them through litellm


NAMES = ("openai", "responses", "anthropic", "gemini")


def ask(litellm, provider, answers, **arguments):
    """The answer to one question and the emulator that gave it."""
    emulate, converse, defaults = PROVIDERS[provider]
    with emulate({"small": SMALL}) as emulator:
        emulator.script(answers)
        conversation = converse(litellm, emulator, provider, **{**defaults, **arguments})
        conversation.messages.append({"role": "user", "content": "Go."})
        return litellm.ask(messages=conversation.messages, **conversation.arguments), emulator


@pytest.mark.parametrize("provider", NAMES)
@pytest.mark.parametrize(
    ("status", "retry_after"), [(429, 7), (500, None), (503, None), (529, None)]
)
def test_failures_have_a_status_and_a_retry_delay(litellm, provider, status, retry_after):
    answer, _ = ask(litellm, provider, [Failure(status, retry_after)])
    error = answer["error"]
    assert (error["status"], error["retry_after"]) == (status, retry_after and str(retry_after))


@pytest.mark.parametrize("provider", NAMES)
@pytest.mark.parametrize("fault", ["cut_after", "fail_after"])
def test_a_stream_can_break(litellm, provider, fault):
    answer, _ = ask(
        litellm,
        provider,
        [Reply((Text("A text that is long enough for several events."),), **{fault: 2})],
    )
    assert answer["error"]["status"] is None


@pytest.mark.parametrize("provider", NAMES)
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_finish_reasons_are_translated_by_litellm(litellm, provider, finish):
    answer, _ = ask(litellm, provider, [Reply((Text("It"),), finish=finish)])
    assert (answer["finish"], answer["message"]["content"]) == (finish, "It")


@pytest.mark.parametrize("provider", NAMES)
def test_a_reply_is_cut_at_the_output_limit(litellm, provider):
    effort = {"reasoning_effort": None} if provider == "anthropic" else {}
    answer, emulator = ask(
        litellm, provider, [Reply((Text("word " * 100),))], max_tokens=20, **effort
    )
    assert (answer["finish"], answer["message"]["content"]) == ("length", "word " * 16)
    assert 20 in emulator.usages[0].values() or emulator.usages[0]["candidatesTokenCount"] == 20


def test_a_model_with_reasoning_off_does_not_reason(litellm):
    reply = Reply((Reasoning("Hm."), Text("Done.")))
    answer, emulator = ask(litellm, "anthropic", [reply], reasoning_effort="none", temperature=0)
    assert (answer["message"], emulator.usages[0]["output_tokens"]) == (
        {"role": "assistant", "content": "Done."},
        2,
    )


@pytest.mark.parametrize("provider", NAMES)
def test_two_calls_can_share_an_id(litellm, provider):
    calls = (
        ToolCall("read_file", {"path": "a"}, id="same"),
        ToolCall("read_file", {"path": "b"}, id="same"),
    )
    answer, _ = ask(litellm, provider, [Reply(calls)])
    ids = [call["id"].partition("__thought__")[0] for call in answer["message"]["tool_calls"]]
    assert ids == ["same", "same"]


@pytest.mark.parametrize("provider", NAMES)
def test_a_reply_can_contain_an_unknown_part(litellm, provider):
    answer, _ = ask(litellm, provider, [Reply((Text("Look: "), Unknown(), Text("seen.")))])
    assert answer["message"]["content"] == "Look: seen."


def test_content_can_be_a_list_of_parts():
    with OpenAIChat() as emulator:
        emulator.script([Reply((Text("One."), Text("Two.")), content_as_parts=True)])
        body = {
            "model": "gpt-5-mini",
            "messages": [{"role": "user", "content": "Go."}],
            "stream": True,
        }
        content = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
        assert f'"content": {json.dumps(content)}' in stream(emulator, "/v1/chat/completions", body)


ENDLESS = [
    (OpenAIChat, "/v1/chat/completions", {"model": "gpt-5-mini", "messages": [USER_SAYS_GO]}),
    (
        OpenAIResponses,
        "/v1/responses",
        {"model": "gpt-5.4", "input": "Go.", "reasoning": {"effort": "low", "summary": "auto"}},
    ),
    (
        AnthropicMessages,
        "/v1/messages",
        {
            "model": "claude-sonnet-4-5",
            "messages": [USER_SAYS_GO],
            "max_tokens": 2000,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
    ),
    (
        GeminiContent,
        "/models/gemini-3.1-pro-preview:streamGenerateContent?alt=sse",
        {
            "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        },
    ),
]


@pytest.mark.parametrize(("emulate", "path", "body"), ENDLESS)
def test_reasoning_can_be_endless(emulate, path, body):
    emulator = emulate(reasoning_field="reasoning") if emulate is OpenAIChat else emulate()
    with emulator:
        emulator.script([Reply((Reasoning("Hmm."), Text("Done.")), endless=True)])
        streaming = {} if emulate is GeminiContent else {"stream": True}
        assert stream(emulator, path, {**body, **streaming}, limit=100_000).count("Hmm.") > 200


TOO_LONG = {"openai": 1_200_000, "responses": 4_000_000, "anthropic": 900_000, "gemini": 4_400_000}


@pytest.mark.parametrize("provider", NAMES)
def test_litellm_recognises_a_prompt_over_the_context(litellm, provider):
    emulate, _, arguments = PROVIDERS[provider]
    with emulate() as emulator:
        messages = [{"role": "user", "content": "x" * TOO_LONG[provider]}]
        answer = litellm.ask(
            messages=messages, api_base=emulator.base_url, max_tokens=16_000, **arguments
        )
        assert (answer["error"]["type"], answer["error"]["status"]) == (
            "ContextWindowExceededError",
            400,
        )


# -- usage


def test_openai_caches_prefixes_of_1024_tokens_in_steps_of_128():
    with OpenAIChat() as emulator:
        emulator.script(lambda _: Reply((Text("Done."),)))

        def cached(text, key="a"):
            messages = [
                {"role": "system", "content": text},
                {"role": "user", "content": f"{emulator.next_number}"},
            ]
            body = {"model": "gpt-5-mini", "messages": messages, "prompt_cache_key": key}
            post(emulator, "/v1/chat/completions", body)
            return emulator.usages[-1]["prompt_tokens_details"]["cached_tokens"]

        assert [cached("x" * 4000), cached("x" * 4000)] == [0, 0]
        assert [cached("y" * 8000), cached("y" * 8000), cached("y" * 8000, "other")] == [0, 1920, 0]


def test_anthropic_caches_only_up_to_cache_marks():
    with AnthropicMessages() as emulator:
        emulator.script(lambda _: Reply((Text("Done."),)))

        def usage(*texts, ttl="5m", model="claude-sonnet-4-5"):
            system = [{"type": "text", "text": text} for text in texts]
            if ttl:
                system[-1]["cache_control"] = {"type": "ephemeral", "ttl": ttl}
            messages = [{"role": "user", "content": f"{emulator.next_number}"}]
            body = {"model": model, "max_tokens": 100, "system": system, "messages": messages}
            post(emulator, "/v1/messages", body)
            reported = emulator.usages[-1]
            return reported["cache_read_input_tokens"], *reported["cache_creation"].values()

        assert usage("x" * 8000, ttl=None) == (0, 0, 0)
        assert usage("x" * 4000) == (0, 0, 0)
        read, written, _ = usage("x" * 8000)
        assert (read, written) == (0, 2008)
        assert usage("x" * 8000) == (2008, 0, 0)
        assert usage("x" * 8000, "y" * 4000, ttl="1h") == (2008, 0, 1007)
        assert usage("z" * 8000) == (0, 2008, 0)


def test_gemini_reports_cached_and_image_tokens():
    with GeminiContent() as emulator:
        emulator.script([TWO_CALLS, Reply((Reasoning("So."), Text("Done.")))])
        path, body = gemini_history(emulator)
        body["systemInstruction"] = {"parts": [{"text": "x" * 40_000}]}
        post(emulator, path, body)
        assert emulator.usages[0]["thoughtsTokenCount"] == 6
        assert emulator.usages[1]["promptTokensDetails"][1] == {
            "modality": "IMAGE",
            "tokenCount": 258,
        }
        assert "cachedContentTokenCount" not in emulator.usages[1]
        emulator.script([Reply((Text("Done."),))])
        post(emulator, path, body)
        assert (
            emulator.usages[2]["cachedContentTokenCount"]
            >= emulator.usages[2]["promptTokenCount"] - 1
        )
