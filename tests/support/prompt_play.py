"""A small app with only the prompt; it records what the prompt sends."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import App, ComposeResult
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Static

from ecoshell.agent.command_table import Completion
from ecoshell.messages import Attachment
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History
from ecoshell.tui.prompt.prompt import Prompt

COMMANDS = (
    Completion("/budget", "[session|day|month] [amount]  set or show a spending cap"),
    Completion("/help", "list the commands"),
    Completion("/model", "NAME  use another model"),
    Completion("/quit", "leave"),
    Completion("/tools", "what is registered"),
)
MODELS = ("embedded", "local:tiny.gguf", "openai/gpt-5-mini")
NAMES = (
    "README.md",
    "docs/",
    "docs/read me.md",
    "ecoshell/tui/keys.py",
    "ecoshell/tui/prompt/prompt.py",
    "notes.txt",
)
LONG = "\n".join(f"line {at}" for at in range(312))
"""A paste long enough to become an attachment."""


def completed(text: str) -> list[Completion]:
    """Completions as the core returns them: of the name, then of the argument."""
    offers = [Completion(f"/model {name}", "use another model") for name in MODELS]
    return [offer for offer in (offers if " " in text else COMMANDS) if offer.text.startswith(text)]


class PromptApp(App[None]):
    """A prompt below an empty screen."""

    CSS = "Static#rest { height: 1fr; } PromptBar { padding: 0 1; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        super().__init__()
        self.names = names
        self.sent: list[Draft] = []
        self.asked_for_names = 0
        self.draft_file = DraftFile(folder / "draft.txt")
        self.history_file = folder / "history.txt"

    def compose(self) -> ComposeResult:
        yield Static(id="rest")
        yield PromptBar(History(self.history_file), self.draft_file)

    def on_mount(self) -> None:
        self.prompt.completer, self.prompt.send = completed, self.send
        self.prompt.mentions.files = self.files
        self.prompt.focus()

    async def files(self) -> Sequence[str]:
        self.asked_for_names += 1
        return self.names

    def send(self, draft: Draft) -> None:
        """Take the typed draft, as the chat does."""
        assert draft == self.query_one(PromptBar).prompt.take()
        self.sent.append(draft)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def offered(self) -> list[str]:
        """Labels in the visible completion list."""
        completions = self.query_one(CompletionList)
        return [offer.label for offer in completions.offers] if completions.display else []

    @property
    def highlighted(self) -> str:
        """Label of the highlighted completion."""
        return self.query_one(CompletionList).current.label

    @property
    def title_words(self) -> str:
        """The title above the prompt."""
        return str(self.query_one(PromptBar).border_title or "").strip()

    def paste(self, text: str) -> None:
        """Paste, as a terminal does."""
        self.post_message(Paste(text))

    def type_in_one_packet(self, *keys: str) -> None:
        """Post keys to the app as the driver does when they arrive together."""
        for key in keys:
            self.post_message(Key(key, key if len(key) == 1 else None))


def attached(draft: Draft) -> list[Attachment]:
    """The attachments of a draft."""
    return list(draft.attachments)


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    """Let the app run until a condition is true, with a long time limit."""
    async with asyncio.timeout(600):
        while not true():
            await pilot.pause()
