"""Whole sessions against emulators that enforce provider rules: parallel calls, reasoning, resume, model switches."""

from contextlib import ExitStack, asynccontextmanager
from decimal import Decimal

import pytest
from agent_play import of, turn
from pictures import png
from providers import (
    AnthropicMessages,
    GeminiContent,
    Model,
    OpenAIChat,
    OpenAIResponses,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    Unknown,
)

from ecoshell.assembly.shell import assemble
from ecoshell.catalog import CORE
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Compacted,
    ModelReplied,
)
from ecoshell.options import Options
from ecoshell.paths import user_paths

PROVIDERS = {
    "openai/gpt-5-mini": OpenAIChat,
    "openai/responses/gpt-5.4": OpenAIResponses,
    "anthropic/claude-sonnet-4-5": AnthropicMessages,
    "gemini/gemini-3.1-pro-preview": GeminiContent,
}
STEPS_PER_TURN = 2


def replies(prompt):
    """Two steps of three parallel calls with reasoning, then an answer."""
    made = 0
    for message in reversed(prompt.messages):
        if message.role == "user" and message.text and not message.results:
            break
        made += bool(message.calls)
    if made == STEPS_PER_TURN:
        return Reply((Reasoning("That is all."), Text(f"Answer to: {prompt.question[-20:]}")))
    lines = {"start_line": 1, "end_line": made + 1}
    calls = [ToolCall("read_file", {"path": path, **lines}) for path in ("a.txt", "b.txt")]
    extra = ToolCall("run_command", {"command": f"echo step {made}"})
    return Reply((Reasoning(f"Step {made} needs both files."), Text("I read both."), *calls, extra))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-test-key-of-nobody")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name in ("a.txt", "b.txt"):
        (workspace / name).write_text(f"{name} one\n{name} two\n{name} three\n")
    return workspace


@pytest.fixture
def emulators():
    """The running emulators by model name."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(kind()) for name, kind in PROVIDERS.items()}
        for emulator in running.values():
            emulator.script(replies)
        yield running


@pytest.fixture
def opened(home, emulators):
    @asynccontextmanager
    async def opening(model, context=None, **options):
        file = user_paths().settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        tables = [
            f'[models."{name}"]\nbase_url = "{emulator.base_url}"\n'
            for name, emulator in emulators.items()
        ]
        if context is not None:
            tables = [
                "[agent]\nmax_output_tokens = 4000\n",
                *(f"{table}context = {context}\n" for table in tables),
            ]
        file.write_text("".join(tables), encoding="utf-8")
        shell = await assemble(Options(model=model, workspace=home, yes=True, **options))
        try:
            yield shell
        finally:
            await shell.aclose()

    return opening


async def ask(shell, number):
    events = await turn(shell, f"Question {number}: what is in the files?")
    assert events[-1].status == "answered", [event for event in events if event.type == "error"]
    return events


EFFORTS = pytest.mark.parametrize("effort", [pytest.param("auto", marks=pytest.mark.slow), "high"])
"""High effort brings thinking blocks, whose rules are the strict ones."""
STRICTEST = ("anthropic/claude-sonnet-4-5", "high")
ROUNDS = [
    pytest.param(model, effort, marks=() if (model, effort) == STRICTEST else pytest.mark.slow)
    for model in PROVIDERS
    for effort in ("auto", "high")
]


@pytest.mark.parametrize(("model", "effort"), ROUNDS)
async def test_thirty_steps_with_parallel_calls_and_a_resume_pass(opened, emulators, model, effort):
    emulator = emulators[model]
    async with opened(model, effort=effort) as shell:
        first = await ask(shell, 0)
        for number in range(1, 6):
            await ask(shell, number)
        session = shell.session
    last = emulator.requests[-1]
    async with opened(model, effort=effort, resume=session) as shell:
        for number in range(6, 11):
            await ask(shell, number)
        await shell.command("/undo")
        await ask(shell, 11)
    assert emulator.rejections == []
    assert len(emulator.requests) == 12 * (STEPS_PER_TURN + 1)
    assert last is not emulator.requests[-1]
    started, finished = of(first, CallStarted), of(first, CallFinished)
    assert len({call.group for call in started}) == STEPS_PER_TURN
    assert sorted(call.id for call in started) == sorted(call.id for call in finished)
    assert all(reply.finish for reply in of(first, ModelReplied))


async def test_a_resumed_session_reserves_what_its_provider_counted_before(opened, emulators, home):
    (home / "a.txt").write_text("".join(f"line {number} of the file\n" for number in range(2_000)))
    model = "anthropic/claude-sonnet-4-5"
    emulators[model].script(
        [Reply((ToolCall("read_file", {"path": "a.txt"}),)), *(Reply((Text("Read."),)),) * 2]
    )
    async with opened(model, budget="5") as shell:
        await ask(shell, 0)
        session = shell.session
    async with opened(model, resume=session) as shell:
        events = await ask(shell, 1)
    held, settled = of(events, BudgetHeld)[0], of(events, BudgetSettled)[0]
    assert settled.usage.input > 10_000
    assert settled.usage.input <= held.held_tokens - held.max_tokens <= 1.2 * settled.usage.input


@pytest.mark.parametrize(("budget", "counts"), [("0.05", 1), ("20", 0)])
async def test_the_provider_counts_the_first_prompt_under_a_small_cap(
    opened, emulators, budget, counts
):
    model = "anthropic/claude-sonnet-4-5"
    emulator = emulators[model]
    emulator.script([Reply((Text("There is nothing to do."),))])
    async with opened(model, budget=budget) as shell:
        events = await ask(shell, 0)
    assert sum("count" in path for path in emulator.paths) == counts
    assert emulator.rejections == []
    held, settled = of(events, BudgetHeld)[0], of(events, BudgetSettled)[0]
    bound = held.held_tokens - held.max_tokens
    assert settled.usage.input <= bound
    assert (bound < 2 * settled.usage.input) == bool(counts)


async def test_a_server_of_unknown_context_gets_a_shorter_output_once_it_states_it(
    opened, emulators
):
    name = "openai/my-model"
    with OpenAIChat(models={"my-model": Model(8_192, 32_768)}) as emulator:
        emulators[name] = emulator
        emulator.script([*(Reply((Text("Nothing is in them."),)),) * 2])
        async with opened(name, price=(Decimal("0.2"), Decimal("0.8")), budget="0.10") as shell:
            await ask(shell, 0)
            await ask(shell, 1)
    assert len(emulator.rejections) == 1
    assert "maximum context length is 8192" in emulator.rejections[0]
    assert [request["max_tokens"] > 3_000 for request in emulator.requests] == [True] * 3


@pytest.mark.parametrize("effort", ["low", "high", "max"])
async def test_a_summary_reads_the_conversation_from_the_cache(opened, emulators, home, effort):
    (home / "a.txt").write_text("a line of the file\n" * 2_000)
    model = "anthropic/claude-sonnet-4-5"
    emulator = emulators[model]
    read = ToolCall("read_file", {"path": "a.txt"})
    emulator.script(
        [
            Reply((Reasoning("I read it."), read)),
            Reply((Reasoning("That is all."), Text("It has 2,000 lines. " * 100))),
            Reply((Reasoning("I summarize."), Text("A file of 2,000 lines was read."))),
        ]
    )
    async with opened(model, effort=effort) as shell:
        await ask(shell, 0)
        await shell.command("/compact")
    step, summary = emulator.requests[-2:]
    assert summary["thinking"] == step["thinking"]
    assert summary["max_tokens"] >= summary["thinking"]["budget_tokens"] + 4_000
    before, usage = emulator.usages[-2:]
    cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
    assert usage["cache_read_input_tokens"] == cached > 8_000
    assert emulator.rejections == []


@EFFORTS
async def test_a_conversation_moves_between_all_providers(opened, emulators, effort):
    models = [*PROVIDERS]
    async with opened(models[0], effort=effort) as shell:
        for number, model in enumerate([*models, *models]):
            await shell.command(f"/model {model}")
            await ask(shell, number)
    for model, emulator in emulators.items():
        assert emulator.rejections == [], model
        assert len(emulator.requests) == 2 * (STEPS_PER_TURN + 1)


def replies_with_images(prompt):
    """Two steps that read an image and print 6,000 characters each, then a long answer; a summary on request."""
    if not prompt.tools or "summar" in prompt.question[:400].lower():
        return Reply((Text("Summary: the pictures are grey and the numbers were printed."),))
    made = 0
    for message in reversed(prompt.messages):
        if message.role == "user" and message.text and "Question" in message.text:
            break
        made += bool(message.calls)
    if made >= STEPS_PER_TURN:
        return Reply((Reasoning("That is all."), Text("Both are grey. " * 400)))
    calls = (
        ToolCall("read_file", {"path": "photo.png"}),
        ToolCall("read_file", {"path": "a.txt", "end_line": made + 1}),
    )
    numbers = ToolCall("run_command", {"command": f"seq {made + 1} 1300"})
    return Reply((Reasoning(f"Step {made}."), Text("I look."), *calls, numbers))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=() if model == STRICTEST[0] else pytest.mark.slow)
        for model in PROVIDERS
    ],
)
async def test_thirty_steps_with_images_compaction_a_switch_and_a_resume_pass(
    opened, emulators, home, model
):
    (home / "photo.png").write_bytes(png())
    second = next(name for name in PROVIDERS if name != model)
    for emulator in emulators.values():
        emulator.script(replies_with_images)
    options = {"context": 16_000}

    async def ask_about_image(shell, number):
        events = await turn(shell, f"Question {number}: what is in @photo.png?")
        assert events[-1].status == "answered", [
            event for event in events if event.type in ("error", "notice")
        ]
        return events

    async with opened(model, **options) as shell:
        events = [event for number in range(5) for event in await ask_about_image(shell, number)]
        await shell.command(f"/model {second}")
        events += await ask_about_image(shell, 5)
        await shell.command(f"/model {model}")
        events += await ask_about_image(shell, 6)
        session = shell.session
    async with opened(model, resume=session, **options) as shell:
        events += [
            event for number in range(7, 10) for event in await ask_about_image(shell, number)
        ]
    for name, emulator in emulators.items():
        assert emulator.rejections == [], name
    assert len(of(events, ModelReplied)) >= 30
    assert any(event.automatic for event in of(events, Compacted))
    assert all(
        call.images
        for call in of(events, CallFinished)
        if call.name == "read_file" and "photo" in call.observation
    )


async def test_a_reply_with_three_calls_is_sent_back_as_one_message_with_its_ids(opened, emulators):
    emulator = emulators["openai/gpt-5-mini"]
    ids = ("call_aZ9", "call_bY8", "call_cX7")
    calls = tuple(
        ToolCall("read_file", {"path": "a.txt", "end_line": n + 1}, call_id)
        for n, call_id in enumerate(ids)
    )
    emulator.script([Reply(calls), Reply((Text("Done."),))])
    async with opened("openai/gpt-5-mini") as shell:
        await ask(shell, 1)
    assistant, *results = emulator.requests[1]["messages"][-4:]
    assert [call["id"] for call in assistant["tool_calls"]] == [*ids]
    assert [result["tool_call_id"] for result in results] == [*ids]


async def test_the_first_request_has_native_core_tools_and_room_for_long_outputs(opened, emulators):
    async with opened("openai/gpt-5-mini") as shell:
        await ask(shell, 1)
    request = emulators["openai/gpt-5-mini"].requests[0]
    names = [tool["function"]["name"] for tool in request["tools"]]
    assert names[:6] == [
        "list_files",
        "read_file",
        "search_text",
        "edit_file",
        "write_file",
        "run_command",
    ]
    assert "tool_call" not in names
    assert request["max_completion_tokens"] >= 16_000


async def test_tools_and_system_text_are_the_same_bytes_in_another_workspace(
    opened, emulators, home, tmp_path
):
    emulator = emulators["openai/gpt-5-mini"]
    async with opened("openai/gpt-5-mini") as shell:
        await ask(shell, 1)
    first = emulator.requests[0]
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("a.txt", "b.txt", "more.py"):
        (other / name).write_text("x\ny\n")
    async with opened("openai/gpt-5-mini") as shell:
        await shell.aclose()
    shell = await assemble(Options(model="openai/gpt-5-mini", workspace=other, yes=True))
    try:
        count = len(emulator.requests)
        await ask(shell, 2)
        again = emulator.requests[count]
    finally:
        await shell.aclose()
    core = len(CORE) + 1  # and tool_register; tools that are likely for a question follow
    assert again["tools"][:core] == first["tools"][:core]
    assert again["messages"][0] == first["messages"][0]


UNUSUAL = {
    "unknown parts": (Reply((Unknown(), Text("Fine."))), 1, "Fine."),
    "content as a list of parts": (Reply((Text("Fine."),), content_as_parts=True), 1, "Fine."),
    "two calls with one ID": (
        Reply((ToolCall("read_file", {"path": "a.txt"}, "call_same"),) * 2),
        2,
        "Answer",
    ),
    "a prefixed name": (Reply((ToolCall("functions.read_file", {"path": "a.txt"}),)), 2, "Answer"),
    "a name in another case": (Reply((ToolCall("Read_File ", {"path": "a.txt"}),)), 2, "Answer"),
    "10,000 calls": (
        Reply(tuple(ToolCall("count_text", {"text": str(n)}) for n in range(10_000))),
        2,
        "Answer",
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case == "10,000 calls" else ())
        for case in UNUSUAL
    ],
)
async def test_unusual_replies_of_openai_servers_are_accepted(opened, emulators, case):
    emulator, (reply, requests, answer) = emulators["openai/gpt-5-mini"], UNUSUAL[case]
    emulator.script([reply, Reply((Text("Answer"),))])
    async with opened("openai/gpt-5-mini") as shell:
        events = await ask(shell, 1)
    assert emulator.rejections == []
    assert len(emulator.requests) == requests
    assert answer in events[-1].answer


async def test_reasoning_without_end_is_cut_off_within_the_cap(opened, emulators):
    emulator = emulators["openai/gpt-5-mini"]
    emulator.script(lambda _: Reply((Reasoning("hm " * 2000),), endless=True))
    async with opened("openai/gpt-5-mini", budget="0.05") as shell:
        events = await turn(shell, "Think.")
        caps = await shell.deps.budget.caps()
    assert events[-1].status in ("error", "limit")
    assert all(cap.spent + cap.held <= cap.limit for cap in caps)
