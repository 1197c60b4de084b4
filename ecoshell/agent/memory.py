"""A session as models read it, rebuilt from its events: the same live, resumed and after a kill."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ecoshell.agent.past_turn import OpenTurn, PastTurn, Shown
from ecoshell.agent.view import (
    Condensed,
    View,
    end_line,
    opening_text,
    path_of,
    summary_messages,
    trimmed_message,
)
from ecoshell.catalog import (
    STABLE,
    Catalog,
    Presentation,
    RegisteredTool,
    RegisteredTools,
    presentation_of,
)
from ecoshell.errors import UsageError
from ecoshell.events import (
    Answer,
    BackgroundEnded,
    BackgroundStarted,
    BranchLeft,
    CallFinished,
    CommandRan,
    Compacted,
    ContextTold,
    Event,
    PlanWritten,
    Quote,
    ResultsTrimmed,
    TodoChanged,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.events.work import is_done
from ecoshell.messages import TOOL_REGISTER, Call, Message, Observation
from ecoshell.strategies import Path
from ecoshell.tools.background import end_text, state_mark

TYPICAL_QUESTION = "x" * 200
"""A question of typical length, for estimates."""


class Memory:
    """A session's messages, registered tools and undoable turns, updated with each event."""

    def __init__(self, catalog: Catalog, past: Iterable[Event] = ()) -> None:
        """Registrations of tools that are no longer in the catalog are ignored."""
        self._catalog = catalog
        self._open: OpenTurn | None = None
        self.summary = ""
        """The summary of compacted turns; empty before the first compaction."""
        self.turns: list[PastTurn] = []
        """The turns since the last compaction."""
        self.commands: tuple[CommandRan, ...] = ()
        """Shell commands since the last question, which are sent with the next one."""
        self.shown = Shown()
        self.library = RegisteredTools()
        self.answers: list[str] = []
        self.plan: PlanWritten | None = None
        self.plan_quote: Quote | None = None
        self.number = 0
        """Number of the last turn; 0 before the first."""
        self.background: dict[str, BackgroundStarted | BackgroundEnded] = {}
        """The last event of each background command, by ID."""
        self._past_background: frozenset[str] = frozenset()
        for event in past:
            self.see(event)
        self._past_background = frozenset(self.background)
        self._close("interrupted", None)  # the process was killed in this turn

    @property
    def messages(self) -> tuple[Message, ...]:
        """All finished turns as models read them, compacted ones as a summary."""
        compacted = summary_messages(self.summary) if self.summary else ()
        return (*compacted, *(message for turn in self.turns for message in turn.messages))

    @property
    def condensed(self) -> Condensed:
        """The condensed parts of the running turn."""
        return Condensed() if self._open is None else self._open.condensed

    @property
    def open_turn(self) -> PastTurn | None:
        """The running turn so far."""
        return None if self._open is None else self._open.past("", None)

    @property
    def contexts(self) -> tuple[str, ...]:
        """The workspace contexts in the messages, which small models do not read."""
        return tuple(turn.context for turn in self.turns if turn.context)

    @property
    def ends(self) -> Mapping[str, str]:
        """The lines of the running turn about ended background commands, and those still to send, by ID."""
        lines = {} if self._open is None else dict(self._open.ends)
        for id_, event in self.background.items():
            is_past = id_ in self._past_background
            is_ended = is_past or isinstance(event, BackgroundEnded)
            if is_ended and id_ not in self.shown.ends:
                lines[id_] = end_line(event, is_past=is_past)
        return lines

    @property
    def presentation(self) -> Presentation:
        """The session's presentation, determined in its first turn."""
        return self.shown.presentation or STABLE

    @property
    def last_turn(self) -> PastTurn:
        """The turn that could be undone; raises UsageError without one."""
        if self.turns:
            return self.turns[-1]
        if self.summary:
            raise UsageError("Earlier turns were compacted into a summary and cannot be undone.")
        raise UsageError("This session has no turns.", fix="Ask something.")

    def see(self, event: Event) -> None:
        match event:
            case TurnStarted():
                # a killed process may have left the previous turn open
                self._close("interrupted", None)
                path = path_of(event.question, event.attachments)
                self._open = OpenTurn(event, self.commands, self.shown, path)
                self.commands, self.number = (), event.turn
                if is_done(self.shown.todo):
                    self.shown = replace(self.shown, todo=())
            case TodoChanged():
                self.shown = replace(self.shown, todo=event.items)
            case PlanWritten():
                self.plan = event
            case Quote(kind="plan"):
                self.plan_quote = event
            case TurnFinished():
                self._close(event.status, event.consumption.nano)
            case CommandRan():
                self.commands += (event,)
            case TurnUndone():  # its registrations stay in the library and are shown again
                if self.turns and self.turns[-1].number == event.turn:
                    turn = self.turns.pop()
                    self.commands, self.shown = turn.commands + self.commands, turn.before
            case Compacted() if event.calls:
                if (turn := self._open) is not None:
                    turn.condensed = turn.condensed.including(event, turn.path)
            case Compacted():
                self.summary, self.turns = event.summary, []
                shown = self.shown
                self.shown = Shown(
                    presentation=shown.presentation, todo=shown.todo, ends=shown.ends
                )
                if (turn := self._open) is not None:  # undoing it does not restore earlier turns
                    turn.before = self.shown
            case ResultsTrimmed():
                self._trim(event)
            case BackgroundStarted() | BackgroundEnded():
                self.background[event.id] = event
            case ToolRegistered() | ToolUnregistered():
                self._follow_registration(event)
            case _ if self._open is not None:
                self._follow(self._open, event)
            case _:
                pass

    def _follow_registration(self, event: ToolRegistered | ToolUnregistered) -> None:
        if isinstance(event, ToolUnregistered):
            by_user, name = event.by_user, event.name
            self.library = self.library.removing(name) if by_user else self.library.without((name,))
            # the next question lists it by name
            self.shown = replace(self.shown, names=self.shown.names - {name})
        elif event.text or event.name in self._catalog:
            self._register(event)

    def _register(self, event: ToolRegistered) -> None:
        tool = RegisteredTool(event.name, event.tokens, event.by, event.text)
        self.library = self.library.including([tool])
        if (turn := self._open) is None or event.by not in ("agent", "first_call"):
            return
        call_id = event.id or event.name  # sessions of old versions have no ID
        turn.registrations[call_id] = tool
        self.shown = replace(self.shown, schemas=self.shown.schemas | {event.name})
        if event.by == "agent":
            result = event.text  # of a skill
            if not result:
                schema = self._catalog.schema(event.name)
                result = self.presentation.registration_result(schema)
            call = Call(TOOL_REGISTER, {"tool_name": event.name}, call_id, event.group)
            turn.add(turn.started_step(call, Observation(result)))

    def _close(self, status: str, spent_nano: int | None) -> None:
        """Close the open turn, if any; calls without a result are recorded as stopped."""
        turn, self._open = self._open, None
        if turn is None:
            return
        for step in turn.calls.values():
            subject = step.call.subject
            turn.ran.add(subject)
            stopped = Observation(f"The turn ended before {subject} did.", ok=False)
            turn.add(replace(step, observation=stopped))
        past = turn.past(turn.ending(status), spent_nano)
        if turn.refused and status == "error":  # keeping it would have every later question refused
            past = replace(past, commands=(), messages=(), context="")
            self.commands, self.shown = turn.commands + self.commands, turn.before
        self.turns.append(past)

    def _trim(self, event: ResultsTrimmed) -> None:
        """Shorten these results wherever models read them."""
        ids = {(result.turn, result.id) for result in event.results}
        if (turn := self._open) is not None:
            number = turn.started.turn
            own = {call: event.characters for of, call in ids if of == number}
            trimmed = {**turn.condensed.trimmed, **own}
            turn.condensed = replace(turn.condensed, trimmed=trimmed)

        def shortened(message: Message, number: int) -> Message:
            call = message.call if message.speaker == "tool" else None
            is_trimmed = call is not None and (number, call.id) in ids
            return trimmed_message(message, event.characters) if is_trimmed else message

        for index, past in enumerate(self.turns):
            messages = tuple(shortened(message, past.number) for message in past.messages)
            self.turns[index] = replace(past, messages=messages)

    def _follow(self, turn: OpenTurn, event: Event) -> None:
        """Process one event of the open turn."""
        match event:
            case ContextTold():
                turn.context = event.text
                self.shown = replace(self.shown, context=event)
            case ToolsOffered():
                self._follow_offer(turn, event)
            case BranchLeft():
                self._backtrack(turn, event)
            case Answer():
                self.answers.append(event.text)
                turn.see(event)
            case CallFinished() if event.id in turn.calls:
                read = frozenset(
                    end.id
                    for end in self.background.values()
                    if isinstance(end, BackgroundEnded)
                    and event.observation.endswith(state_mark(end.id, end_text(end.status)))
                )
                self.shown = replace(self.shown, ends=self.shown.ends | read)
                turn.see(event)
            case _:
                turn.see(event)

    def _follow_offer(self, turn: OpenTurn, event: ToolsOffered) -> None:
        turn.listing, turn.advice, turn.budget = event.listing, event.advice, event.budget
        turn.ends = event.ends
        # the first turn with it determines what its array declares
        presentation = self.shown.presentation
        if presentation is None or presentation.name != event.presentation:
            declared = event.declared or (*self.library.names, *event.upfront)
            is_complete = self._catalog.is_all(declared)
            if event.declared:
                is_complete = set(event.names).issuperset(self._catalog.names)
            registers = not is_complete
            presentation = presentation_of(event.presentation, declared, registers=registers)
        ends = self.shown.ends | event.ends.keys()
        self.shown = replace(self.shown, presentation=presentation, ends=ends)
        if event.listing:
            listed = {*event.upfront, *self.library.names}
            listed -= presentation.declared if presentation else set()
            names = self.shown.names | {*event.names, *event.skills}
            schemas = self.shown.schemas | listed
            self.shown = replace(self.shown, names=names, schemas=schemas)

    def _backtrack(self, turn: OpenTurn, event: BranchLeft) -> None:
        """Return to another path, and drop what only the abandoned path had registered."""
        abandoned = {tool.name for tool in turn.registered}
        steps = tuple(turn.steps[call] for call in event.path if call in turn.steps)
        turn.path, turn.rationale = replace(turn.path, steps=steps), ""
        turn.calls.clear()
        registered = turn.registered
        self.library = self.library.without(abandoned).including(registered)
        schemas = self.shown.schemas - abandoned | {tool.name for tool in registered}
        self.shown = replace(self.shown, schemas=schemas)


def next_view(
    memory: Memory,
    catalog: Catalog,
    question: str = TYPICAL_QUESTION,
    *,
    names: Sequence[str] | None = None,
    context: str = "",
    defers: bool = False,
) -> View:
    """The view of a question asked now, by default of typical length.

    `names` are listed, by default all; `context` is the workspace context; `defers` says that the model's provider
    loads deferred tools.
    """
    schemas = catalog.schemas_of(memory.library.tools)
    names = catalog.names if names is None else names
    new_names = [name for name in names if name not in memory.shown.names]
    new_schemas = [schema for schema in schemas if schema.name not in memory.shown.schemas]
    listing = memory.presentation.opening(new_names, new_schemas, servers=catalog.servers)
    offers_all = memory.presentation.declared or (defers and memory.presentation.deferred)
    return View(
        path=Path(question),
        opening=opening_text(listing, question, context=context),
        history=memory.messages,
        contexts=memory.contexts,
        known=catalog.names,
        skills=bool(catalog.skills),
        registered=schemas,
        presentation=memory.presentation,
        deferrable=catalog.schemas if offers_all else (),
    )
