"""Tools loaded by a provider's own tool search: sessions against emulators of Anthropic and OpenAI Responses."""

import json
from contextlib import ExitStack, asynccontextmanager

import pytest
from agent_play import of, turn
from providers import (
    AnthropicMessages,
    GeminiContent,
    OpenAIResponses,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolSearch,
)

from ecoshell.assembly.shell import assemble
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    ModelReplied,
    ToolRegistered,
    ToolsOffered,
)
from ecoshell.options import Options
from ecoshell.paths import user_paths

CLAUDE, GPT, GEMINI = (
    "anthropic/claude-sonnet-4-5",
    "openai/responses/gpt-5.4",
    "gemini/gemini-3.1-pro-preview",
)
SEARCHING = {CLAUDE: AnthropicMessages, GPT: OpenAIResponses}
PROVIDERS = {**SEARCHING, GEMINI: GeminiContent}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
EXPENSIVE = 10**9


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    for name in KEYS:
        monkeypatch.setenv(name, "sk-test-key-of-nobody")
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def emulators():
    with ExitStack() as stack:
        yield {name: stack.enter_context(kind()) for name, kind in PROVIDERS.items()}


@pytest.fixture
def opened(workspace, emulators):
    @asynccontextmanager
    async def opening(model, *, tool_search=True, **options):
        file = user_paths().settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        flag = str(tool_search).lower()
        tables = [
            f'[models."{name}"]\nbase_url = "{emulator.base_url}"\ntool_search = {flag}\n'
            for name, emulator in emulators.items()
        ]
        file.write_text("".join(tables), encoding="utf-8")
        options = {"registration": "names"} | options
        shell = await assemble(Options(model=model, workspace=workspace, yes=True, **options))
        try:
            yield shell
        finally:
            await shell.aclose()

    return opening


def searched(*calls, tools=None, say=""):
    """A reply that searches for tools, loads them and calls them."""
    loaded = tuple(dict.fromkeys(call.name for call in calls)) if tools is None else tools
    text = (Text(say),) if say else ()
    return Reply((Reasoning("I need a tool."), *text, ToolSearch("tools", loaded), *calls))


def answer(text="Done."):
    return Reply((Reasoning("That is all."), Text(text)))


def array(emulator, number=-1):
    return json.dumps(emulator.requests[number]["tools"])


def names(emulator, number=-1):
    return [tool.get("name") for tool in emulator.requests[number]["tools"]]


async def ask(shell, question="What is in a.txt?"):
    events = await turn(shell, question)
    assert events[-1].status == "answered", [
        event for event in events if event.type in ("error", "notice")
    ]
    return events


READ = ToolCall("read_file", {"path": "a.txt"})
COUNT = ToolCall("count_text", {"text": "one two"})


@pytest.mark.parametrize("model", SEARCHING)
async def test_a_tool_loaded_by_the_provider_is_registered_at_its_first_call(
    opened, emulators, model
):
    emulator = emulators[model]
    emulator.script([searched(READ), answer(), searched(COUNT), answer(), Reply((READ,)), answer()])
    async with opened(model) as shell:
        first = await ask(shell)
        second = await ask(shell, "How many words?")
        await ask(shell, "Read it again, please.")
        tools = {row.name: row for row in (await shell.status()).tools}
    assert emulator.rejections == []
    [offered] = of(first, ToolsOffered)
    assert offered.presentation == "deferred"
    [registered] = of(first, ToolRegistered)
    assert (registered.name, registered.by) == ("read_file", "first_call")
    assert [(event.name, event.ok) for event in of(first, CallFinished)] == [("read_file", True)]
    assert [event.name for event in of(second, ToolRegistered)] == ["count_text"]
    assert {name for name, row in tools.items() if row.registered} == {"read_file", "count_text"}
    assert len({array(emulator, number) for number in range(6)}) == 1
    assert "tool_register" not in names(emulator)
    deferred = [tool for tool in emulator.requests[0]["tools"] if tool.get("defer_loading")]
    assert {tool["name"] for tool in deferred} == {*tools}


@pytest.mark.parametrize("model", SEARCHING)
async def test_searches_and_their_results_are_sent_back_also_after_a_resume(
    opened, emulators, model
):
    emulator = emulators[model]
    emulator.script(
        [searched(READ, say="I look."), answer(), answer("Hello."), answer("Hello again.")]
    )
    async with opened(model) as shell:
        await ask(shell)
        await ask(shell, "Hello?")
        session = shell.session
    async with opened(model, resume=session) as shell:
        await ask(shell, "And again?")
    assert emulator.rejections == []
    sent = [
        json.dumps(request.get("input") or request["messages"]) for request in emulator.requests
    ]
    assert [
        text.count("tool_search_tool_result") + text.count("tool_search_output") for text in sent
    ] in (
        [0, 1, 1, 1],
        [0, 2, 2, 2],  # the type of the block and of its content
    )
    assert len({array(emulator, number) for number in range(4)}) == 1


@pytest.mark.parametrize("model", SEARCHING)
async def test_parallel_calls_of_loaded_tools_register_each_tool_once(opened, emulators, model):
    emulator = emulators[model]
    calls = (READ, COUNT, ToolCall("count_text", {"text": "three"}), ToolCall("list_files", {}))
    emulator.script([searched(*calls), answer()])
    async with opened(model) as shell:
        events = await ask(shell)
    assert emulator.rejections == []
    assert sorted(event.name for event in of(events, ToolRegistered)) == [
        "count_text",
        "list_files",
        "read_file",
    ]
    finished = of(events, CallFinished)
    assert [event.ok for event in finished] == [True] * 4
    assert len({event.group for event in finished}) == 1
    assert not any(event.id.startswith("srvtoolu_") for event in finished)


@pytest.mark.parametrize("model", SEARCHING)
async def test_a_search_without_a_call_ends_the_turn_with_its_text(opened, emulators, model):
    emulator = emulators[model]
    emulator.script([Reply((ToolSearch("weather", ()), Text("No such tool exists."))), answer()])
    async with opened(model) as shell:
        events = await ask(shell)
        await ask(shell, "Never mind.")
    assert emulator.rejections == []
    assert events[-1].answer == "No such tool exists."
    assert of(events, CallFinished) == of(events, ToolRegistered) == []


@pytest.mark.parametrize("model", SEARCHING)
async def test_a_session_moves_to_another_family_and_back(opened, emulators, model):
    emulator, gemini = emulators[model], emulators[GEMINI]
    emulator.script([searched(READ), answer(), searched(COUNT), answer()])
    register = Reply((ToolCall("tool_register", {"tool_name": "list_files"}),))
    gemini.script([Reply((READ,)), register, Reply((ToolCall("list_files", {}),)), answer()])
    async with opened(model) as shell:
        await ask(shell)
        await shell.command(f"/model {GEMINI}")
        moved = await ask(shell, "Go on.")
        await shell.command(f"/model {model}")
        back = await ask(shell, "And on.")
    assert emulator.rejections == gemini.rejections == []
    assert [event.presentation for event in of(moved, ToolsOffered)] == ["grow"]
    assert "tool_search_tool" not in json.dumps(gemini.requests)
    assert [event.presentation for event in of(back, ToolsOffered)] == ["deferred"]
    full = [
        tool.get("name") for tool in emulator.requests[2]["tools"] if not tool.get("defer_loading")
    ]
    assert (
        "list_files" in full
    )  # registered under the other provider, so no search has loaded it here
    assert "read_file" not in full


async def test_a_model_of_the_same_family_without_tool_search_gets_no_searches_back(
    opened, emulators
):
    emulator = emulators[CLAUDE]
    emulator.script([searched(READ), answer(), answer("Hello.")])
    async with opened(CLAUDE) as shell:
        await ask(shell)
    async with opened(CLAUDE, tool_search=False, resume=shell.session) as shell:
        await ask(shell, "Hello?")
    assert emulator.rejections == []
    assert "srvtoolu_" in json.dumps(emulator.requests[1])
    assert "srvtoolu_" not in json.dumps(emulator.requests[2])
    assert "defer_loading" not in array(emulator)


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_another_presentation_turns_deferral_off(opened, emulators, presentation):
    emulator = emulators[CLAUDE]
    emulator.script([answer()])
    async with opened(CLAUDE, presentation=presentation) as shell:
        [offered] = of(await ask(shell), ToolsOffered)
    assert offered.presentation == presentation
    assert "defer_loading" not in array(emulator)
    assert "tool_register" in names(emulator)


async def test_the_core_set_is_loaded_unless_registration_is_by_name(opened, emulators):
    emulator = emulators[CLAUDE]
    emulator.script([answer()])
    async with opened(CLAUDE, registration="auto", presentation="auto") as shell:
        [offered] = of(await ask(shell), ToolsOffered)
    core = ["list_files", "read_file", "search_text", "edit_file", "write_file", "run_command"]
    assert names(emulator)[:6] == core
    assert not any(tool.get("defer_loading") for tool in emulator.requests[0]["tools"][:6])
    assert {*core} <= {*offered.upfront}


async def test_deferred_schemas_take_no_context_until_they_are_loaded(opened, emulators):
    emulators[CLAUDE].script([searched(READ), answer()])
    async with opened(CLAUDE) as shell:
        await ask(shell)
        report = await shell.conversation.context_report()
    assert {use.name for use in report.uses if use.kind == "tools"} & {
        "read_file",
        "count_text",
    } == {"read_file"}


@pytest.mark.parametrize("model", SEARCHING)
async def test_every_reservation_covers_all_deferred_schemas(opened, emulators, model):
    emulator = emulators[model]
    emulator.script([searched(READ), Reply((READ, COUNT)), answer(), answer(), answer()])
    async with opened(model, budget="5.00") as shell:
        events = [event for number in range(3) for event in await ask(shell, f"Question {number}?")]
        schemas = sum(len(json.dumps(tool.as_function())) for tool in shell.deps.catalog.schemas)
    reservations, settled = of(events, BudgetHeld), of(events, BudgetSettled)
    assert len(reservations) == len(settled) == len(of(events, ModelReplied))
    prompts = [event.held_tokens - event.max_tokens for event in reservations]
    usages = [event.usage.input for event in settled]
    assert all(prompt > usage for prompt, usage in zip(prompts, usages, strict=True))
    loaded = sum(
        len(json.dumps(shell.deps.catalog.schema(name).as_function()))
        for name in ("read_file", "count_text")
    )
    assert min(prompts) > schemas - loaded
