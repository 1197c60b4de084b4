"""One session: its past, its skill library, and the turns that are asked in it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from ecoshell.agent.context import finished_messages, past_messages
from ecoshell.agent.guards import Affordable, Approved, Known, Registered, Runner, Source, Told
from ecoshell.agent.kit import Kit
from ecoshell.agent.limit import LimitDesk
from ecoshell.agent.meta import Meta
from ecoshell.agent.offer import Offer, make_offer, shown_in
from ecoshell.agent.turn import Ended, Frame, Turn
from ecoshell.catalog.presentation import STABLE, Presentation
from ecoshell.catalog.registration import Decision
from ecoshell.catalog.skills import Skill, SkillLibrary
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import (
    BudgetChanged,
    BudgetSettled,
    Emit,
    ErrorHappened,
    Event,
    StepStarted,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Message, ToolDocument, Usage
from ecoshell.strategies.base import Path


@dataclass(slots=True)
class Tally:
    """Adds up what a turn costs from its events; money becomes unknown once any part of it is."""

    started: float = field(default_factory=time.monotonic)
    spent_nano: int | None = 0
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _carried: int = 0
    _everything: int = 0

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BudgetSettled():
                unknown = self.spent_nano is None or event.spent_nano is None
                self.spent_nano = None if unknown else (self.spent_nano or 0) + (event.spent_nano or 0)
                self.usage += event.usage
            case StepStarted():
                self.steps = event.step
                self.saved_tokens += max(0, self._everything - self._carried)
            case ToolsOffered():
                self._carried, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._carried += event.tokens if event.by == "agent" else 0
                self.registered.append(event.name)
            case _:
                pass


class Conversation:
    """A session being talked in. One turn at a time; every event is on disk before anybody sees it."""

    def __init__(self, kit: Kit, session: str, past: Sequence[Event] = ()) -> None:
        self.session = session
        self._kit = kit
        self._turns = sum(isinstance(event, TurnStarted) for event in past)
        self._shown = shown_in(past)
        self._history: tuple[Message, ...] = past_messages(past, self._registration_again)
        self.decision: Decision | None = None
        self._running: asyncio.Task[None] | None = None
        self.library = _library_of(past, kit)
        kit.purse.enter(session, self._turns)

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def presentation(self) -> Presentation:
        """How tools are put before the model; settled in the session's first turn."""
        return self._shown.presentation or STABLE

    @property
    def turn(self) -> int:
        """The number of the last turn; 0 before the first."""
        return self._turns

    async def ask(self, question: str) -> AsyncGenerator[Event]:
        """One turn's events, ending in TurnFinished; raises UsageError for an empty question or while a turn runs."""
        if not question.strip():
            raise UsageError("The question is empty.", fix="Type what you would like to know or have done.")
        if self.busy:
            raise UsageError("A turn is under way.", fix="Wait for it, or stop it with Esc (Ctrl-C in the line shell).")
        arrived: asyncio.Queue[Event | None] = asyncio.Queue()
        self._turns += 1
        self._kit.purse.enter(self.session, self._turns)
        self._running = asyncio.create_task(self._perform(question, arrived))
        self._running.add_done_callback(lambda task: self._close(task, question, arrived))
        try:
            async with aclosing(_batches(arrived)) as batches:
                async for batch in batches:
                    await self._kit.log.record(self.session, batch)
                    for event in batch:
                        yield event
        except StoreError:  # a further try would only wait for the same lock once more
            self._kit.log.keep(self.session, await self._settle_down(arrived))
            raise
        finally:
            left = await self._settle_down(arrived)
            if left:
                await self._kit.log.record(self.session, left)

    async def stop(self) -> None:
        """Stop the turn that runs, if one does; its stream still ends in TurnFinished."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._running])

    async def register(self, name: str) -> Event:
        """Register a tool by the user's hand; raises UsageError for an unknown name."""
        tokens, exact = await asyncio.to_thread(self._measure, self.known(name))
        self.library = self.library.including([Skill(name, tokens, "user")])
        return await self.note(ToolRegistered(name, tokens, exact, 0, "user"))

    async def unregister(self, name: str) -> Event:
        """Take a tool out of the library; the model may register it again."""
        self.known(name)
        if name not in self.library:
            raise UsageError(f"{name} is not registered.", fix="/tools shows what is.")
        self.library = self.library.without(name)
        return await self.note(ToolUnregistered(name))

    def known(self, name: str) -> ToolDocument:
        """The document of a known tool; raises UsageError with the closest names."""
        if name in self._kit.catalog:
            return self._kit.catalog.document(name)
        closest = self._kit.catalog.closest(name)
        fix = f"Did you mean {' or '.join(closest)}?" if closest else "/tools lists all names."
        raise UsageError(f"There is no tool called {name!r}.", fix=fix)

    async def _settle_down(self, arrived: "asyncio.Queue[Event | None]") -> list[Event]:
        """After the reader has gone: end the turn; gives the events nobody read."""
        await self.stop()
        self._running = None
        return [event for event in _drain(arrived) if event is not None]

    async def _perform(self, question: str, arrived: "asyncio.Queue[Event | None]") -> None:
        """Run one turn and put its events, in order, where the reader takes them."""
        tally = Tally()

        def emit(event: Event) -> None:
            tally.see(event)
            arrived.put_nowait(event)

        ended = Ended("error", "", Path(question), 0)
        try:
            emit(TurnStarted(self._turns, question, self._kit.model, self._kit.cast.mode.name, self._kit.strategy))
            ended = await self._turn(question, emit)
        except asyncio.CancelledError:
            ended = Ended("interrupted", "", Path(question), tally.steps)
        except Exception as failure:  # noqa: BLE001 - the edge of the worker: a defect ends the turn, not the shell
            emit(ErrorHappened.of(failure))
        finally:
            try:
                emit(BudgetChanged(await self._kit.purse.caps()))
            except (asyncio.CancelledError, EcoshellError):
                pass  # stopped once more, or the ledger is locked: the turn ends all the same
            finally:
                emit(_finished(self._turns, ended, tally))

    def _close(self, task: "asyncio.Task[None]", question: str, arrived: "asyncio.Queue[Event | None]") -> None:
        """End the stream of a turn that is over, also of one that was stopped before it could begin."""
        if task.cancelled():
            ended = Ended("interrupted", "", Path(question), 0)
            arrived.put_nowait(_finished(self._turns, ended, Tally()))
        arrived.put_nowait(None)

    async def _turn(self, question: str, emit: Emit) -> Ended:
        kit = self._kit
        offer = await asyncio.to_thread(
            make_offer, question, kit, library=self.library, shown=self._shown, history=self._history
        )
        self._take_up(offer, emit)
        frame = Frame(
            offer.opening, self._history, kit.catalog, offer.names, self.library, offer.presentation, offer.large
        )
        desk = LimitDesk(kit.purse, lambda: kit.person, kit.switch)
        turn = Turn(
            frame,
            mode=self._kit.cast.mode,
            strategy=kit.strategies[kit.strategy],
            source=self._source(offer),
            desk=desk,
            emit=emit,
        )
        try:
            ended = await turn.run(question, kit.max_steps)
        except BaseException:  # whatever ended it, later turns see how far it came
            self._remember(offer, turn.so_far("interrupted"))
            raise
        self._remember(offer, ended)
        return ended

    def _take_up(self, offer: Offer, emit: Emit) -> None:
        """Make the offer the session's: its documents are registered, its names need not be told again."""
        self.library = self.library.including(offer.upfront)
        self._shown, self.decision = offer.shown, offer.decision
        emit(offer.event())
        for skill in offer.upfront:
            emit(ToolRegistered(skill.name, skill.tokens, offer.exact, 0, "upfront"))

    def _remember(self, offer: Offer, ended: Ended) -> None:
        """After a turn: what its path registered stays registered, and later turns see what happened."""
        skills: list[Skill] = []
        for name in ended.path.registered:
            if name in self._kit.catalog:
                skills.append(Skill(name, self._measure(self._kit.catalog.document(name))[0], "agent"))
        self.library = self.library.including(skills)
        self._shown = replace(self._shown, documents=self._shown.documents | set(ended.path.registered))
        self._history += finished_messages(offer.opening, ended.path, ended.answer or f"[{ended.status}]")

    def _source(self, offer: Offer) -> Source:
        """The row of guards, outermost first."""
        kit = self._kit
        row: Source = Runner(kit.catalog)
        row = Approved(row, kit.catalog, kit.approvals)
        row = Affordable(row, kit.catalog, kit.purse)
        row = Known(Registered(row), kit.catalog)
        return Meta(
            Told(row),
            catalog=kit.catalog,
            ranker=kit.ranker,
            presentation=offer.presentation,
            measure=self._measure,
        )

    def _measure(self, document: ToolDocument) -> tuple[int, bool]:
        """Tokens of a document for the model of the moment, which may change at a limit."""
        return self._kit.cast.measure(document, self.presentation)

    def _registration_again(self, name: str) -> str:
        """What the model read when it registered this tool; empty when the tool is gone."""
        known = name in self._kit.catalog
        return self.presentation.registration_result(self._kit.catalog.document(name)) if known else ""

    async def note(self, event: Event) -> Event:
        """Keep something that happened between turns."""
        await self._kit.log.record(self.session, [event])
        return event


async def _batches(arrived: "asyncio.Queue[Event | None]") -> AsyncGenerator[list[Event]]:
    """What has arrived since the last look, as often as something has; ends at None."""
    while True:
        batch = [await arrived.get(), *_drain(arrived)]
        events = [event for event in batch if event is not None]
        if events:
            yield events
        if len(events) < len(batch):
            return


def _drain(arrived: "asyncio.Queue[Event | None]") -> list[Event | None]:
    return [arrived.get_nowait() for _ in range(arrived.qsize())]


def _finished(number: int, ended: Ended, tally: Tally) -> TurnFinished:
    return TurnFinished(
        turn=number,
        status=ended.status,
        answer=ended.answer,
        spent_nano=tally.spent_nano,
        usage=tally.usage,
        steps=tally.steps,
        registered=tuple(dict.fromkeys(tally.registered)),
        seconds=time.monotonic() - tally.started,
        saved_tokens=tally.saved_tokens,
    )


def _library_of(past: Sequence[Event], kit: Kit) -> SkillLibrary:
    """The skill library at the end of a session read from its events."""
    library = SkillLibrary()
    for event in past:
        if isinstance(event, ToolRegistered) and event.name in kit.catalog:
            library = library.including([Skill(event.name, event.tokens, event.by)])
        elif isinstance(event, ToolUnregistered):
            library = library.without(event.name)
    return library
