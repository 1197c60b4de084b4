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


def copy_id(*path):
    """Give the second of two calls the ID of the first."""

    def mutate(body):
        calls, name = parent_of(body, (*path[:-1], -1, path[-1]))
        calls[name] = parent_of(body, (*path[:-1], -2, path[-1]))[0][name]

    return mutate


USER = {"role": "user", "content": "More."}
USER_SAYS_GO = {"role": "user", "content": "Go."}
HOUR = {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
MARK = {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral"}}
IMAGE = ("messages", 0, "content", 1)
CALLS = ("messages", 1, "tool_calls")
BLOCKS = ("messages", 1, "content")
RESULTS = ("messages", 2, "content")
DECLARATION = ("tools", 0, "functionDeclarations", 0)
REPLY = ("contents", 1, "parts")
RESPONSES = ("contents", 2, "parts")
INLINE = ("contents", 0, "parts", 1, "inlineData")

VIOLATIONS = [
    (OpenAIChat, "orphan", drop("messages", 1), "must be a response to a preceeding message"),
    (OpenAIChat, "missing result", drop("messages", 3), "did not have response messages: call_"),
    (OpenAIChat, "result later", insert("messages", 3, USER), "did not have response messages"),
    (OpenAIChat, "two results", repeat("messages", 3), "Duplicate value for 'tool_call_id'"),
    (OpenAIChat, "one id twice", copy_id(*CALLS, "id"), "Duplicate 'id'"),
    (OpenAIChat, "long id", put(*CALLS, 0, "id", "x" * 41), "maximum length 40"),
    (OpenAIChat, "field", put("messages", 1, "reasoning_content", "x"), "Unknown parameter"),
    (OpenAIChat, "long name", put("tools", 0, "function", "name", "x" * 65), "maximum length 64"),
    (OpenAIChat, "max_tokens", put("max_tokens", 100), "Use 'max_completion_tokens' instead"),
    (OpenAIChat, "temperature", put("temperature", 0.3), "'temperature' does not support 0.3"),
    (OpenAIChat, "model", put("model", "gpt-0"), "The model `gpt-0` does not exist"),
    (OpenAIResponses, "no reasoning", drop("input", 1), "without its required 'reasoning' item"),
    (OpenAIResponses, "altered", put("input", 1, "encrypted_content", "x"), "not be verified"),
    (
        OpenAIResponses,
        "not stored",
        drop("input", 1, "encrypted_content"),
        "Items are not persisted",
    ),
    (OpenAIResponses, "orphan", drop("input", 3), "No tool call found for function call output"),
    (OpenAIResponses, "missing result", drop("input", 6), "No tool output found for function call"),
    (OpenAIResponses, "two results", repeat("input", 6), "Duplicate function call output"),
    (OpenAIResponses, "tool name", put("tools", 0, "name", "files.read"), "does not match pattern"),
    (OpenAIResponses, "deferred", put("tools", 0, "defer_loading", True), "require a tool_search"),
    (OpenAIResponses, "too little", put("max_output_tokens", 5), "Expected a value >= 16"),
    (AnthropicMessages, "no thinking", drop(*BLOCKS, 0), "Expected `thinking` or `redacted_thinki"),
    (AnthropicMessages, "altered", put(*BLOCKS, 0, "thinking", "x"), "Invalid `signature`"),
    (AnthropicMessages, "index", put(*BLOCKS, 0, "index", 0), "Extra inputs are not permitted"),
    (AnthropicMessages, "missing result", drop(*RESULTS, 1), "without `tool_result` blocks"),
    (AnthropicMessages, "text first", insert(*RESULTS, 0, MARK), "immediately after"),
    (AnthropicMessages, "one id twice", copy_id(*BLOCKS, "id"), "`tool_use` ids must be unique"),
    (AnthropicMessages, "forced", put("tool_choice", {"type": "any"}), "Thinking may not be enab"),
    (AnthropicMessages, "temperature", put("temperature", 0.3), "may only be set to 1 when"),
    (AnthropicMessages, "budget", put("thinking", "budget_tokens", 9000), "must be greater than"),
    (AnthropicMessages, "roles", insert("messages", 0, USER), "roles must alternate"),
    (AnthropicMessages, "blank", put(*BLOCKS, 1, "text", " \n"), "must contain non-whitespace"),
    (AnthropicMessages, "no tools", drop("tools"), "must define tools"),
    (
        AnthropicMessages,
        "jpeg as png",
        put(*IMAGE, "source", "data", JPEG),
        "appears to be a image",
    ),
    (AnthropicMessages, "five marks", put("system", [MARK] * 5), "A maximum of 4 blocks with cach"),
    (AnthropicMessages, "order of marks", put("system", [MARK, HOUR]), "must not come after a ttl"),
    (
        GeminiContent,
        "no signature",
        drop(*REPLY, 1, "thoughtSignature"),
        "missing a thought_signat",
    ),
    (GeminiContent, "altered", put(*REPLY, 1, "thoughtSignature", "AAAA"), "Corrupted thought sig"),
    (GeminiContent, "calls swapped", swap(*REPLY, 1, 2), "does not match the function call"),
    (GeminiContent, "results swapped", swap(*RESPONSES, 0, 1), "does not match the function call"),
    (GeminiContent, "missing result", drop(*RESPONSES, 1), "number of function response parts"),
    (GeminiContent, "call first", drop("contents", 0), "comes immediately after a user turn"),
    (GeminiContent, "empty", put("contents", 0, "parts", []), "contents.parts must not be empty"),
    (GeminiContent, "unknown field", put(*REPLY, 0, "type", "text"), 'Unknown name "type"'),
    (GeminiContent, "tool name", put(*DECLARATION, "name", "2 files"), "Invalid function name"),
    (GeminiContent, "jpeg as png", put(*INLINE, "data", JPEG), "Unable to process input image"),
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
