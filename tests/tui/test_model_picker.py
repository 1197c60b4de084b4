"""The model picker, driven by keys."""

from dataclasses import replace
from decimal import Decimal

from picker_play import Stage, here, listed, read
from textual.widgets import Static
from tui_play import STATUS, FakeShell, eventually

from ecoshell.budget import ZERO_PRICE, Price, Rates
from ecoshell.models import HERE, ModelRow
from ecoshell.tui.screens.pickers import ModelPicker

DEAR = Price(
    Rates(Decimal("2.5"), Decimal("1.25"), Decimal("2.5"), Decimal(10), Decimal(10)),
    source="your settings",
)
MODELS = (
    ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
    ModelRow("local:/models/tiny.gguf", HERE, True, 4096, None, ZERO_PRICE),
    ModelRow(
        "ollama_chat/qwen3:4b",
        "Ollama",
        True,
        8192,
        None,
        ZERO_PRICE,
        kind="server",
        size_bytes=2_500_000_000,
        address="http://127.0.0.1:11434",
    ),
    ModelRow(
        "hf:maker/small-GGUF:Q4_K_M",
        "hub",
        False,
        None,
        None,
        ZERO_PRICE,
        kind="hub",
        missing="ecoshell models pull maker/small-GGUF:Q4_K_M brings it: about 1.1 GB",
    ),
    ModelRow("openai/gpt-4o", "openai", True, 128_000, 16_384, DEAR),
    ModelRow(
        "openai/greedy", "openai", True, None, None, None, blocked="it billed more than it may"
    ),
    ModelRow("mine/model", "mine", True, 4096, None, None, address="http://127.0.0.1:1/v1"),
    ModelRow("bedrock/claude", "bedrock", None, 200_000, None, DEAR, at_hand=False),
    ModelRow(
        "claude-sonnet",
        "anthropic",
        False,
        200_000,
        64_000,
        DEAR,
        missing="Set ANTHROPIC_API_KEY",
        at_hand=False,
    ),
)


def detail(stage: Stage) -> str:
    return str(stage.shown.query_one("#detail", Static).visual)


def stage(**state: object) -> Stage:
    return Stage(ModelPicker(FakeShell(known=MODELS, state=replace(STATUS, **state))))


async def test_model_picker_lists_prices_context_and_state_and_highlights_the_current_model():
    app = stage(model="openai/gpt-4o")
    async with app.run_test(size=(120, 36)) as pilot:
        await read(pilot, app.shown)
        rows = [row.split() for row in listed(app.shown)]
        assert rows[0] == ["embedded", "this", "machine", "free", "free", "8.2k", "installed"]
        assert rows[2] == ["ollama_chat/qwen3:4b", "Ollama", "free", "free", "8.2k", "running"]
        assert rows[3] == [
            "hf:maker/small-GGUF:Q4_K_M",
            "hub",
            "free",
            "free",
            "?",
            "to",
            "download",
        ]
        assert rows[4] == ["openai/gpt-4o", "openai", "2.5", "10", "128k", "in", "use"]
        assert rows[5][1:] == ["openai", "?", "?", "?", "blocked"]
        assert rows[6][-2:] == ["own", "server"]
        assert len(rows) == 7
        assert here(app.shown).startswith("openai/gpt-4o")
        assert "$2.50 in, $1.25 cached, $10 out per million tokens (your settings)" in detail(app)
        assert "context 128,000 · answers up to 16,384 tokens" in detail(app)


async def test_selecting_a_model_returns_its_command():
    app = stage()
    async with app.run_test(size=(120, 36)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"gpt4o", "enter")
        await eventually(pilot, lambda: app.given)
    assert app.given == ["/model openai/gpt-4o"]


async def test_missing_key_is_asked_for_and_masked():
    app = stage()
    async with app.run_test(size=(100, 30)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"sonnet", "enter")
        await eventually(pilot, lambda: "needs a key for anthropic" in app.text)
        assert "Set ANTHROPIC_API_KEY" in app.text
        await pilot.press(*"sk-typed-1")
        assert "sk-typed" not in app.text
        await pilot.press("enter")
        await eventually(pilot, lambda: app.given)
    assert app.given == ["/model claude-sonnet"]
    assert app.shown._source.kept == [("anthropic", "sk-typed-1")]


async def test_model_without_a_key_names_the_missing_key():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"sonnet")
        assert here(app.shown).endswith("no key")
        await pilot.press("enter")
        await eventually(pilot, lambda: "Set ANTHROPIC_API_KEY" in app.text)
        await pilot.press("escape")
        await eventually(pilot, lambda: "needs a key" not in app.text)
        assert app.given == []


async def test_model_of_a_running_server_shows_its_size():
    app = stage()
    async with app.run_test(size=(120, 36)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"ollama")
        assert "context 8,192 · 2.5 GB" in detail(app)
        await pilot.press("enter")
        await eventually(pilot, lambda: app.given)
    assert app.given == ["/model ollama_chat/qwen3:4b"]


async def test_recommended_model_is_pulled_when_it_is_chosen():
    app = stage()
    async with app.run_test(size=(120, 36)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"to download")
        assert "ecoshell models pull maker/small-GGUF:Q4_K_M brings it: about 1.1 GB" in detail(app)
        await pilot.press("enter")
        await eventually(pilot, lambda: app.given)
    assert app.given == ["/model pull maker/small-GGUF:Q4_K_M"]


async def test_provider_with_other_login_can_be_tried():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"bedrock")
        assert here(app.shown).endswith("?")
        await pilot.press("enter")
        await eventually(pilot, lambda: app.given)
    assert app.given == ["/model bedrock/claude"]


async def test_blocked_model_shows_the_reason():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"greedy")
        await eventually(pilot, lambda: "blocked: it billed more than it may" in detail(app))
        assert "refused under a cap in dollars" in detail(app)


async def test_models_are_found_by_location_and_state():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app.shown)
        await pilot.press(*"installed")
        assert [row.split()[0] for row in listed(app.shown)] == ["local:/models/tiny.gguf"]
        await pilot.press("ctrl+u", *"this machine")
        assert [row.split()[0] for row in listed(app.shown)] == [
            "embedded",
            "local:/models/tiny.gguf",
        ]


async def test_price_with_too_many_digits_is_shortened_in_the_list():
    odd = Price(Rates(*[Decimal("0.050000000000000004")] * 5))
    app = Stage(ModelPicker(FakeShell(known=(ModelRow("odd", "x", True, None, None, odd),))))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app.shown)
        assert here(app.shown).split() == ["odd", "0.05", "0.05", "?", "has", "a", "key"]
