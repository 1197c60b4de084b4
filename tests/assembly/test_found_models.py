"""Models that were found on this machine are listed under a name by which they really answer."""

import asyncio
from contextlib import ExitStack

import pytest
from model_servers import (
    EMPTY_OLLAMA,
    LLAMA_SERVER,
    LM_STUDIO,
    OLLAMA,
    VLLM,
    ModelServer,
    model_server,
)

from ecoshell.assembly.inventory import memory_bytes
from ecoshell.assembly.live import apply
from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelMissing
from ecoshell.models.recommended import suggested_download
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.settings import load_settings


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "ecoshell"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    for variable in (
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "LLAMA_CACHE",
        "OLLAMA_MODELS",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "ecoshell"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch):
    """The four servers at addresses that their programs' own variables name, by litellm's name of each."""
    monkeypatch.setattr(
        "ecoshell.models.servers.SECONDS", 20.0
    )  # the machines that tests run on have more to do
    kinds = {
        "ollama_chat": (OLLAMA, "OLLAMA_HOST", ""),
        "lm_studio": (LM_STUDIO, "LM_STUDIO_API_BASE", "/v1"),
        "llamafile": (LLAMA_SERVER, "LLAMAFILE_API_BASE", "/v1"),
        "hosted_vllm": (VLLM, "HOSTED_VLLM_API_BASE", "/v1"),
    }
    started: dict[str, ModelServer] = {}
    with ExitStack() as stack:
        for provider, (answers, variable, path) in kinds.items():
            started[provider] = stack.enter_context(model_server(answers))
            monkeypatch.setenv(variable, f"http://{started[provider].host}{path}")
        yield started


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.jsonl"
    file.write_text('{"text": "yes"}\n')
    return f"script:{file}"


async def test_every_model_of_a_running_server_answers_under_the_name_it_is_listed_by(
    servers, script
):
    shell = await assemble(Options(model=script))
    try:
        rows = [row for row in await shell.models() if row.kind == "server"]
        assert {row.name.partition("/")[0] for row in rows} == set(servers)
        for row in rows:
            assert (row.ready, row.state, row.price and row.price.summary()) == (
                True,
                "running",
                "free",
            )
            await shell.command(f"/model {row.name}")
            told = [event async for event in shell.ask("Who are you?")][-1]
            assert (told.status, told.spent_nano) == ("answered", 0), told
            provider, _, bare = row.name.partition("/")
            assert told.answer == f"I am {bare}."
            traits = shell.deps.models.current.model.traits
            assert (traits.context, traits.native_tools) == (row.context, provider != "hosted_vllm")
            assert servers[provider].bodies[0]["model"] == bare
            assert ("tools" in servers[provider].bodies[0]) == traits.native_tools
    finally:
        await shell.aclose()


async def test_once_the_setting_is_off_no_server_is_asked_in_this_run(servers, script, home):
    shell = await assemble(Options(model=script))
    try:
        assert [row.name for row in await shell.models() if row.kind == "server"]
        asked = {provider: len(server.asked) for provider, server in servers.items()}
        user_paths().settings_file.parent.mkdir(parents=True, exist_ok=True)
        user_paths().settings_file.write_text("[local]\nask_servers = false\n")
        settings = load_settings(user_paths().settings_file, {}).settings
        assert await apply(shell, settings, ("local", "ask_servers"), Options())
        assert [row for row in await shell.models() if row.kind == "server"] == []
        assert "ollama_chat" not in await shell.introduction()
        await shell.command("/model ollama_chat/another")
        assert {provider: len(server.asked) for provider, server in servers.items()} == asked
    finally:
        await shell.aclose()


@pytest.mark.slow
async def test_while_servers_are_asked_the_event_loop_goes_on(script, monkeypatch):
    with model_server({}, silent=True) as silent:
        monkeypatch.setenv("OLLAMA_HOST", silent.host)
        shell = await assemble(Options(model=script))
        try:
            listing, turns = asyncio.create_task(shell.models()), 0
            while not listing.done():
                await asyncio.sleep(0)
                turns += 1
        finally:
            await shell.aclose()
    assert turns > 100


async def test_a_file_in_the_hub_cache_is_listed_by_its_name_on_the_hub_and_can_be_taken(
    home, tmp_path, script
):
    pytest.importorskip("llama_cpp", reason="the extra `local` is not installed")
    from ecoshell.models.embedded import embedded_path

    snapshot = (
        tmp_path
        / "home"
        / ".cache"
        / "huggingface"
        / "hub"
        / "models--maker--tiny-GGUF"
        / "snapshots"
        / "abc"
    )
    snapshot.mkdir(parents=True)
    (snapshot / "tiny-Q4_1.gguf").symlink_to(embedded_path())
    shell = await assemble(Options(model=script))
    try:
        (row,) = [row for row in await shell.models() if row.kind == "file"]
        assert (row.name, row.place, row.context, row.ready) == (
            "hf:maker/tiny-GGUF:Q4_1",
            "hub cache",
            8192,
            True,
        )
        await shell.command(f"/model {row.name}")
        assert (
            shell.deps.models.current.model.traits.name,
            shell.deps.models.current.model.traits.local,
        ) == (
            row.name,
            True,
        )
    finally:
        await shell.aclose()


async def test_a_model_of_the_hub_that_is_not_here_says_how_to_bring_it(script):
    with pytest.raises(ModelMissing, match="is not on this machine") as failed:
        await assemble(Options(model="hf:maker/tiny-GGUF:Q8_0"))
    assert failed.value.fix == "Download it with: ecoshell models pull maker/tiny-GGUF:Q8_0"


async def test_the_introduction_says_which_model_answers_and_how_to_get_a_better_one(servers):
    shell = await assemble(Options(model="embedded"))
    try:
        told = await shell.introduction()
        assert told.startswith("embedded is a demo model of 135 million parameters")
        assert "/model ollama_chat/qwen3:4b" in told
    finally:
        await shell.aclose()


async def test_where_nothing_better_is_there_the_introduction_names_one_that_can_be_pulled(
    home, monkeypatch
):
    monkeypatch.setenv("ECOSHELL_LOCAL_ASK_SERVERS", "false")
    for variable in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    shell = await assemble(Options(model="embedded"))
    try:
        assert (
            f"downloads a better one ({suggested_download(memory_bytes()).summary})"
            in await shell.introduction()
        )
        monkeypatch.setattr("ecoshell.assembly.first_run.is_reachable", lambda _: False)
        await shell.starting_models()
        assert "download" not in await shell.introduction()
        monkeypatch.setenv("OPENAI_API_KEY", "sk-something-long")
        assert "A key for openai is available" in await shell.introduction()
    finally:
        await shell.aclose()


async def test_the_introduction_names_a_server_without_models(monkeypatch):
    monkeypatch.setattr("ecoshell.models.servers.SECONDS", 20.0)
    for variable in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with model_server(EMPTY_OLLAMA) as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.host)
        shell = await assemble(Options(model="embedded"))
        try:
            told = await shell.introduction()
        finally:
            await shell.aclose()
    assert told.endswith("Ollama runs, but has no models: ollama pull NAME downloads one.")
