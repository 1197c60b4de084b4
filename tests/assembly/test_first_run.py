"""The models that the first run offers, and downloads in the background."""

import asyncio

import pytest

from ecoshell.assembly import first_run, inventory
from ecoshell.assembly.first_run import starting_models, suggested_model
from ecoshell.budget.pricebook import PriceBook
from ecoshell.models import ModelRow
from ecoshell.models.hub import HubFile, Pull
from ecoshell.models.hub_names import HubName
from ecoshell.models.keys import Keys
from ecoshell.models.pulling import ProgressText, pull_model
from ecoshell.models.recommended import suggested_download

GB = 10**9
ROWS = {
    "embedded": ModelRow("embedded", "this machine", True, 8192, None, None, kind="embedded"),
    "file": ModelRow(
        "local:qwen.gguf", "this machine", True, 8192, None, None, kind="file", size_bytes=2 * GB
    ),
    "huge": ModelRow(
        "local:huge.gguf", "this machine", True, 8192, None, None, kind="file", size_bytes=900 * GB
    ),
    "server": ModelRow("ollama_chat/qwen3:8b", "Ollama", True, 8192, None, None, kind="server"),
}


class FakeInventory:
    def __init__(self, *names: str) -> None:
        self.names = names

    def local_rows(self) -> list[ModelRow]:
        return [ROWS[name] for name in self.names]


def offers(
    monkeypatch, *names: str, keys: dict[str, str] | None = None, online: bool = False
) -> list[tuple[str, str]]:
    monkeypatch.setattr(first_run, "is_reachable", lambda _: online)
    monkeypatch.setattr(first_run, "memory_bytes", lambda: 16 * GB)
    monkeypatch.setattr(inventory, "memory_bytes", lambda: 16 * GB)
    models = starting_models(FakeInventory(*names), PriceBook(), Keys(keys or {}))
    return [(model.source, model.name) for model in models]


def test_without_network_keys_and_files_only_the_demo_is_offered(monkeypatch):
    assert offers(monkeypatch, "embedded") == [("demo", "embedded")]


def test_a_capable_model_that_is_here_comes_first_and_the_demo_last(monkeypatch):
    found = offers(
        monkeypatch,
        "embedded",
        "huge",
        "file",
        "server",
        keys={"ANTHROPIC_API_KEY": "sk-1"},
        online=True,
    )
    assert [source for source, _ in found] == ["server", "file", "key", "download", "demo"]
    assert ("file", "local:huge.gguf") not in found


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini"])
def test_the_suggested_model_of_a_provider_calls_tools_and_costs_at_most_two_cents_a_step(provider):
    book = PriceBook()
    name = suggested_model(book, provider)
    assert name is not None
    assert book.facts(name).native_tools
    assert 0 < book.price(name).worst(4_000, 500) <= 20_000_000


@pytest.mark.parametrize(("memory", "room"), [(2 * GB, 2), (8 * GB, 4), (16 * GB, 8), (None, 2)])
def test_the_suggested_download_fits_the_memory(memory, room):
    assert suggested_download(memory).memory <= room


def test_progress_tells_amounts_speed_and_remaining_time():
    times = iter([0.0, 2.0])
    progress = ProgressText(1000 * 10**6, clock=lambda: next(times))
    assert progress.text(500 * 10**6) == "500 MB of 1.0 GB"
    assert progress.text(520 * 10**6) == "520 MB of 1.0 GB · 48.0 s left · 10.0 MB/s"


class SlowHub:
    """Sends a file in pieces until it is stopped."""

    def __init__(self) -> None:
        self.sent = 0

    def find(self, name: HubName) -> Pull:
        return Pull(name, "main", (HubFile("model.gguf", 10**12, "0" * 64),), "apache-2.0")

    def pull(self, pull: Pull, progress, on_retry) -> None:
        while True:
            self.sent += 1000
            progress(pull.files[0], self.sent)


class CutHub(SlowHub):
    """Loses the connection once."""

    def pull(self, pull: Pull, progress, on_retry) -> None:
        on_retry()


async def test_a_download_reports_that_it_is_tried_again():
    reported = []
    await pull_model(CutHub(), HubName("maker/tiny-GGUF", "Q8_0"), reported.append)
    await asyncio.sleep(0)
    assert reported[1:] == ["connection lost, trying again · downloading maker/tiny-GGUF:Q8_0"]


async def test_a_download_reports_progress_and_ends_when_it_is_cancelled():
    told, arrived = [], asyncio.Event()

    def tell(text: str) -> None:
        told.append(text)
        if "downloading" in text:
            arrived.set()

    pulling = asyncio.create_task(pull_model(SlowHub(), HubName("maker/tiny-GGUF", "Q8_0"), tell))
    await arrived.wait()
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert told[0] == "looking up maker/tiny-GGUF:Q8_0"
    assert "of 1000.0 GB" in told[-1] or "of 1000 GB" in told[-1]
