"""A shell without a model that yields real events to the chat."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from textual.pilot import Pilot

from ecoshell.agent import UserInterface
from ecoshell.agent.archive import Archive
from ecoshell.agent.command_table import Completion, Printed
from ecoshell.agent.shell_status import ShellStatus, ToolDetails, ToolRow
from ecoshell.budget import CapState
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    BudgetChanged,
    CallFinished,
    CallMarked,
    CallStarted,
    CommandRan,
    CostChosen,
    CostWanted,
    Event,
    LimitChosen,
    LimitHit,
    Notice,
    Rationale,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Attachment, Usage
from ecoshell.models import ModelRow, StartingModel

CAP = CapState("session", "usd", 500_000_000, 91_200_000, 7_100_000)
TOOLS = (
    ToolRow("count_text", 142, True, "agent", "Counts words."),
    ToolRow("read_file", 120, False, "", "Reads a file."),
    ToolRow("write_file", 131, True, "user", "Writes a file."),
    ToolRow("run_command", 164, False, "", "Runs a command."),
)
STATUS = ShellStatus(
    session="s1", title="fix-readme", model="embedded", mode="single", strategy="react", caps=(CAP,),
    spent_nano=91_200_000, used_tokens=18_400, tools=TOOLS, context_tokens=1_942, everything_tokens=14_120, exact=True,
)  # fmt: skip
COMMANDS = (
    Completion("/budget", "set or show the spending cap"),
    Completion("/help", "list the commands"),
    Completion("/quit", "leave"),
    Completion("/tools", "what is registered"),
)
OVERVIEW = (
    ("/budget [SCOPE] [AMOUNT|off]", "show or set a spending cap"),
    ("/help", "list the commands"),
    ("/model [NAME]", "show or change the model"),
    ("/register NAME", "register a tool by hand"),
    ("/resume ID", "resume a session"),
    ("/quit", "leave; everything is kept"),
)
STARTED = TurnStarted(1, "how many words are in notes.txt?", "embedded", "single", "react")
FINISHED = TurnFinished(
    1, "answered", "", 3_100_000, Usage(900, 60), 3, ("count_text",), 2.1, 4_200
)
COUNTING: tuple[Event, ...] = (
    STARTED,
    ToolsOffered(
        tuple(tool.name for tool in TOOLS), (), "grow", 1_800, 14_120, True, "names only is cheaper"
    ),
    TextArrived("I need a word ", "thought", "single"),
    TextArrived("counter.", "thought", "single"),
    Rationale("I need a word counter.", "single"),
    ToolRegistered("count_text", 142, True, 1, "agent"),
    CallStarted("c1", "count_text", {"path": "notes.txt"}),
    CallFinished("c1", "count_text", True, "1,204 words\n88 lines\n7,310 characters", False, 0.012),
    TextArrived("notes.txt has **1,204**", "answer", "single"),
    TextArrived(" words.", "answer", "single"),
    Answer("notes.txt has **1,204** words:\n\n- 88 lines\n- 7,310 characters"),
    BudgetChanged((CAP,)),
    FINISHED,
)
WRITING = CallStarted("c1", "write_file", {"path": "notes.txt", "text": "first line\nsecond line"})
WANTED = ApprovalWanted(
    "c1",
    "write_file",
    WRITING.arguments,
    ("write",),
    "It would change files. “Always” allows every write_file.",
)
HIT = LimitHit(
    "session",
    "usd",
    12_000_000,
    4_000_000,
    "The session cap of $0.50 could be passed by the next call.",
)


@dataclass
class FakeShell:
    """Answers every question with the same events; events that need a decision ask the user."""

    events: Sequence[Event] = COUNTING
    earlier: Sequence[Event] = ()
    resumed: Notice | None = None
    state: ShellStatus = STATUS
    person: UserInterface | None = None
    asked: list[str] = field(default_factory=list)
    attached: list[tuple[Attachment, ...]] = field(default_factory=list)
    names: Sequence[str] = ()
    """Mentionable files."""
    known: Sequence[ModelRow] = ()
    offers: Sequence[StartingModel] = ()
    """Models offered at the first run."""
    all_details: Mapping[str, ToolDetails] = field(default_factory=dict)
    archive: Archive | None = None
    commands: list[str] = field(default_factory=list)
    decisions: list[object] = field(default_factory=list)
    stops_at: int | None = None
    """Index of the event before which the turn waits to be stopped."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    warmed: int = 0
    ahead: int = 0
    read_only: StoreError | None = None
    ran: list[str] = field(default_factory=list)
    marks: list[CallMarked] = field(default_factory=list)
    introduced: str = ""
    """The introduction of the model."""
    resume_hint: str = ""
    kept: list[tuple[str, str]] = field(default_factory=list)
    """Typed keys by provider."""
    printed: Mapping[str, str] = field(default_factory=dict)
    """Output of commands; other commands print `done`."""

    async def ask(
        self, question: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[Event]:
        self.asked.append(question)
        self.attached.append(tuple(attachments))
        for at, event in enumerate(self.events):
            if at == self.stops_at:
                await self.stopped.wait()
                yield replace(FINISHED, status="interrupted")
                return
            yield replace(event, question=question) if isinstance(event, TurnStarted) else event
            if isinstance(event, ApprovalWanted):
                decision = (await self.person.approve(event)).decision
                self.decisions.append(decision)
                yield ApprovalGiven(event.id, decision, "person")
            if isinstance(event, LimitHit):
                choice = await self.person.at_limit(event)
                self.decisions.append(choice)
                yield LimitChosen(choice.kind)
            if isinstance(event, CostWanted):
                preferred = await self.person.at_cost(event)
                self.decisions.append(preferred)
                yield CostChosen(preferred.kind)

    async def run(self, command: str) -> CommandRan:
        self.ran.append(command)
        return CommandRan(command, "clean\n", ok=True, truncated=False, seconds=0.1)

    async def mark(
        self, turn: int, call: str, name: str, helpful: bool | None
    ) -> tuple[CallMarked, ...]:
        self.marks.append(CallMarked(turn, call, name, helpful))
        return (self.marks[-1],)

    async def store_key(self, provider: str, key: str) -> None:
        self.kept.append((provider, key))

    async def warm(self) -> None:
        self.warmed += 1

    def read_ahead(self) -> None:
        self.ahead += 1

    async def stop(self) -> None:
        self.stopped.set()

    async def command(self, line: str) -> Printed:
        self.commands.append(line)
        if line.startswith("/nonsense"):
            raise UsageError("There is no command /nonsense.", fix="Did you mean /sessions?")
        effects = {"/quit": "quit", "/clear": "clear", "/new": "session"}
        if line.startswith("/review"):  # a command of the user's own
            return Printed("", "ask", line.removeprefix("/"))
        return Printed(self.printed.get(line, f"done: {line}"), effects.get(line, ""))

    def complete(self, text: str) -> list[Completion]:
        return [offer for offer in COMMANDS if offer.text.startswith(text)]

    def overview(self) -> list[tuple[str, str]]:
        return list(OVERVIEW)

    async def starting_models(self) -> Sequence[StartingModel]:
        return self.offers

    async def introduction(self) -> str:
        return self.introduced

    @property
    def model_name(self) -> str:
        return self.state.model

    async def models(self) -> list[ModelRow]:
        return list(self.known)

    async def tool_details(self, name: str) -> ToolDetails:
        return self.all_details[name]

    async def files(self) -> list[str]:
        return list(self.names)

    async def values(self, text: str) -> list[Completion]:
        return []

    async def mentionable(self) -> list[str]:
        return list(self.names)

    async def status(self) -> ShellStatus:
        return self.state

    @property
    def past(self) -> list[Event]:
        return list(self.earlier)

    async def aclose(self) -> None:
        self.closed = True


async def eventually(pilot: Pilot[int], true: Callable[[], object]) -> None:
    """Let the app run until a condition is true, with a long time limit."""
    async with asyncio.timeout(180):
        while not true():
            await pilot.pause()
    await pilot.pause()
