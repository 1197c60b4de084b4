"""A small app for questions to the user, shown between a transcript and the prompt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static
from tui_play import eventually

from ecoshell.events import ApprovalWanted, CostWanted, Event, LimitHit, ModelOffer, TrustWanted
from ecoshell.tui.chat import QuestionArea
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import History
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.questions import Question

DIFF = (
    "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+two and a half\n three"
)
WRITES = ApprovalWanted(
    id="c1",
    name="write_file",
    arguments={"path": "notes.txt", "content": "one\nTWO\ntwo and a half\nthree\n"},
    effects=("read", "write"),
    reason="It would change files. “Always” allows every write_file.",
    rationale="The second line is wanted in capitals, so the file is written anew.",
    price_nano=2_000_000,
    changes=DIFF,
)
RUNS = ApprovalWanted(
    id="c2",
    name="run_command",
    arguments={"command": "\n".join(f"echo line {at}" for at in range(60)), "seconds": 20},
    effects=("execute", "network"),
    reason="It would run a program and reach the network. “Always” allows this very call.",
    rationale="Sixty lines are wanted. " * 40,
)
OFFERS = (
    ModelOffer("embedded", True, 0, 4_100, True),
    ModelOffer("openai/gpt-5-nano", False, 1_200_000, 9_300, True),
    ModelOffer(
        "openrouter/a-provider/name-of-a-model-that-does-not-end", False, 31_200_000, 9_300, False
    ),
)
LIMIT = LimitHit(
    scope="session",
    unit="usd",
    need=12_000_000,
    left=4_000_000,
    message="The next call may need $0.012, and the session's cap of $0.50 has $0.004 left.",
    offers=OFFERS,
    enough=530_000_000,
)
COST = CostWanted("single", "openai/gpt-5", 12_000_000, 84_000_000, 50_000_000, OFFERS)

TRUST = TrustWanted(
    "/home/me/project/AGENTS.md",
    "Use tabs.\n" + "One rule of many.\n" * 30 + "The end.",
    changed=True,
)


class AskingApp(App[None]):
    """The surroundings of a question in the chat; asks the question of `event`, if any, at once."""

    CSS = "#transcript { height: 1fr; } Prompt { height: 1; border: none; padding: 0; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, event: Event | None = None) -> None:
        super().__init__()
        self._event = event
        self.prompt = Prompt(CompletionList(), History.__new__(History))
        self.spot = QuestionArea()

    def compose(self) -> ComposeResult:
        yield Static("\n".join(f"transcript line {at}" for at in range(60)), id="transcript")
        yield self.spot
        yield self.prompt

    def on_mount(self) -> None:
        """Focus the prompt, then ask the question."""
        self.prompt.focus()
        if self._event is not None:
            self.run_worker(self.ask(self._event))

    @property
    def question(self) -> Question[object]:
        return self.query_one(Question)

    async def ask(self, event: Event) -> object:
        """Ask the question that belongs to the event, as the core does."""
        match event:
            case ApprovalWanted():
                return await self.spot.approve(event)
            case LimitHit():
                return await self.spot.at_limit(event)
            case CostWanted():
                return await self.spot.at_cost(event)
            case TrustWanted():
                return await self.spot.trust(event)
            case _:
                raise AssertionError(event)


@asynccontextmanager
async def asked(
    event: Event, *, size: tuple[int, int] = (80, 24), typed: str = ""
) -> AsyncIterator[tuple[Pilot[None], "asyncio.Future[object]"]]:
    """Show a question with the text `typed` in the prompt; yield the pilot and the future of the answer."""
    app = AskingApp()
    async with app.run_test(size=size) as pilot:
        app.prompt.text = typed
        answer = await asks(pilot, event)
        try:
            yield pilot, answer
        finally:
            answer.cancel()


async def asks(pilot: Pilot[None], event: Event) -> "asyncio.Future[object]":
    """Show a question in a running app, after any earlier one; return the future of its answer."""
    app = pilot.app
    assert isinstance(app, AskingApp)
    await eventually(pilot, lambda: not app.query(Question))
    answer = asyncio.ensure_future(app.ask(event))
    await eventually(pilot, lambda: app.query(Question))
    return answer
