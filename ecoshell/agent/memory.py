"""A session as models read it, rebuilt from its events: the same live, resumed and after a kill."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ecoshell.agent.mode import View
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
    BranchLeft,
    CallFinished,
    CallJudged,
    CallStarted,
    CommandRan,
    Compacted,
    ContextTold,
    ErrorHappened,
    Event,
    GraphPlanned,
    ModelReplied,
    NodeChanged,
    PlanWritten,
    Quote,
    Rationale,
    ResultsTrimmed,
    SubagentFinished,
    TodoChanged,
    TodoItem,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.events.work import is_done
from ecoshell.messages import (
    FINISH,
    META_TOOLS,
    PROGRAM,
    TOOL_CALL,
    TOOL_REGISTER,
    Attachment,
    Call,
    Message,
    Observation,
    ProviderState,
    fenced,
)
from ecoshell.models.tool_search import client_calls
from ecoshell.strategies import Path, Step

_QUESTION = "x" * 200
"""A question of typical length."""
LARGE_CONTEXT = 32_000
"""Tokens; in smaller contexts the oldest results are cut one by one, larger ones are compacted."""
LEAST_OUTPUT = 1_024
"""Output tokens for which a request in a large context must have room."""
_CUT_CHARACTERS = 80
"""Characters kept of an observation that is cut."""
_TRIM_STEPS = (4_000, 1_200, 400, _CUT_CHARACTERS)
"""Characters kept of each result, tried in turn."""
_DONE_SO_FAR = "What was done for this so far, in short (the earlier steps are no longer shown):"
_NEVER_CUT = META_TOOLS - {TOOL_CALL}
"""Calls whose results are schemas, or short."""


def path_messages(opening: str, path: Path) -> tuple[Message, ...]:
    """The turn as messages: the opening, then each assistant reply followed by the results of its calls."""
    messages = [Message("user", opening, images=path.images)]
    for steps in reply_groups(path.steps):
        calls = tuple(step.call for step in steps)
        messages.append(Message("assistant", steps[0].rationale, calls, state=steps[0].state))
        results = ((step.observation, step.call) for step in steps)
        messages += [
            Message("tool", result.full_text, (call,), images=result.images)
            for result, call in results
        ]
    return tuple(messages)


def reply_groups(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Group the steps by the reply that made them; a step without a reply is a group by itself."""
    numbered = groupby(enumerate(steps), lambda pair: pair[1].call.group or pair[0])
    return [tuple(step for _, step in group) for _, group in numbered]


def is_trimmable(call: Call | None) -> bool:
    """Whether the call's result may be shortened: tool schemas and other meta-tool results may not."""
    return call is None or call.name not in _NEVER_CUT


def trimmed(text: str, characters: int, tool: str) -> str:
    """The beginning and the end of a result, with a note on how to get the rest in between."""
    if len(text) <= characters:
        return text
    end = characters // 3
    removed = len(text) - characters
    marker = f"[{removed:,} characters left out here to make room. Call {tool} again to see what you need of them.]"
    return f"{text[: characters - end]}\n{marker}\n{text[len(text) - end :] if end else ''}"


def trimmed_message(message: Message, characters: int) -> Message:
    """A tool message whose result is trimmed."""
    tool = message.call.subject if message.call else "the tool"
    return replace(message, text=trimmed(message.text, characters, tool))


@dataclass(frozen=True, slots=True)
class Condensed:
    """How models read a turn whose earlier steps were summarized or trimmed."""

    summary: str = ""
    calls: frozenset[str] = frozenset()
    """IDs of the calls that the summary replaces."""
    schemas: tuple[str, ...] = ()
    """Results of registrations among them, since models still need the schemas."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Characters kept of each trimmed result, by the ID of its call."""

    @property
    def forgotten(self) -> frozenset[str]:
        """IDs of calls whose results models no longer read in full, so that repeating them is allowed."""
        return self.calls | self.trimmed.keys()

    def including(self, event: Compacted, path: Path) -> "Condensed":
        """Add a summary that replaces steps of this path."""
        calls = frozenset(event.calls)
        registrations = (
            step for step in path.steps if step.call.id in calls and step.call.name == TOOL_REGISTER
        )
        schemas = tuple(
            dict.fromkeys(step.observation.text for step in registrations if step.observation.ok)
        )
        return replace(self, summary=event.summary, calls=calls, schemas=schemas)

    def path(self, path: Path) -> Path:
        """The path as models read it; complete if it branches off before the end of the summary."""
        steps = path.steps
        if self._applies_to(path):
            steps = tuple(step for step in steps if step.call.id not in self.calls)
        return replace(path, steps=tuple(map(self._step, steps))) if self.forgotten else path

    def opening(self, opening: str, path: Path) -> str:
        """The question as models read it, with the summary."""
        if not self._applies_to(path):
            return opening
        parts = (opening, f"{_DONE_SO_FAR}\n{self.summary}", *self.schemas)
        return "\n\n".join(filter(None, parts))

    def _applies_to(self, path: Path) -> bool:
        return bool(self.calls) and self.calls <= {step.call.id for step in path.steps}

    def _step(self, step: Step) -> Step:
        characters = self.trimmed.get(step.call.id)
        if characters is None:
            return step
        observation = step.observation
        return replace(
            step,
            observation=replace(
                observation, text=trimmed(observation.text, characters, step.call.subject)
            ),
        )


def fit(
    messages: tuple[Message, ...], enough: Callable[[tuple[Message, ...]], bool]
) -> tuple[Message, ...]:
    """Cut the oldest observations until `enough` returns True; schemas are never cut (SPEC §4)."""
    if enough(messages):
        return messages
    shortened = list(messages)
    for index, message in enumerate(messages):
        if message.speaker != "tool" or (message.call and message.call.name in _NEVER_CUT):
            continue
        if len(message.text) > 2 * _CUT_CHARACTERS:
            removed = len(message.text) - _CUT_CHARACTERS
            text = f"{message.text[:_CUT_CHARACTERS]} [cut: {removed} characters, to make room]"
            shortened[index] = replace(message, text=text, images=())
        elif message.images:
            shortened[index] = replace(message, images=())
        if enough(tuple(shortened)):
            break
    return tuple(shortened)


def fit_together(
    messages: tuple[Message, ...], enough: Callable[[tuple[Message, ...]], bool]
) -> tuple[Message, ...]:
    """Trim all results to the same length, as long as `enough` allows; schemas are never trimmed."""
    shortened = messages
    for characters in _TRIM_STEPS:
        if enough(shortened):
            break
        shortened = tuple(
            trimmed_message(message, characters)
            if message.speaker == "tool" and is_trimmable(message.call)
            else message
            for message in messages
        )
    return shortened


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model has seen in earlier turns, so that it is not repeated."""

    names: frozenset[str] = frozenset()
    schemas: frozenset[str] = frozenset()
    context: ContextTold | None = None
    """The workspace context."""
    presentation: Presentation | None = None
    """The session's presentation, which stays the same so that each prompt is a prefix of the next."""
    todo: tuple[TodoItem, ...] = ()
    """The agent's task list."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A finished turn, and how models read it."""

    number: int
    question: str
    attachments: tuple[Attachment, ...]
    commands: tuple[CommandRan, ...]
    """Shell commands that the user ran before it, sent with its question."""
    before: Shown
    messages: tuple[Message, ...]
    """Empty if the question was never sent."""
    ran: frozenset[str]
    """The tools that ran, successfully or not."""
    registered: tuple[str, ...] = ()
    """Tools that the agent registered in it."""
    spent_nano: int | None = None
    """None if any part is unknown, or if the turn never ended."""
    context: str = ""
    """The workspace context at the head of its question."""
    copies: str = ""
    """Name of the copies of the files before it."""
    listing: str = ""
    """Names, schemas and plan advice before its question."""


@dataclass(slots=True)
class _OpenTurn:
    """A turn that is being rebuilt from its events."""

    started: TurnStarted
    commands: tuple[CommandRan, ...]
    before: Shown
    path: Path
    context: str = ""
    listing: str = ""
    advice: str = ""
    budget: str = ""
    rationale: str = ""
    states: dict[str, ProviderState] = field(default_factory=dict[str, ProviderState])
    """The provider states of replies, by group; removed by the reply's first call."""
    answer_state: ProviderState | None = None
    calls: dict[str, Step] = field(default_factory=dict[str, Step])
    """Running calls by ID, as steps without observations."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Sort keys of steps by call ID: in the order of the calls, and for a tool graph in the order of its nodes."""
    graph: tuple[str, ...] = ()
    """The labels of the latest tool graph, in order."""
    graph_place: int | None = None
    """The first sort key of that graph; None before its first step."""
    answer: str = ""
    ran: set[str] = field(default_factory=set[str])
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    """The steps of all branches, by call ID."""
    registrations: dict[str, RegisteredTool] = field(default_factory=dict[str, RegisteredTool])
    """The agent's registrations on all branches, by call ID."""
    condensed: Condensed = field(default_factory=Condensed)
    refused: bool = False
    """Whether the question was never sent, for example because it exceeds the model's context."""

    @property
    def registered(self) -> list[RegisteredTool]:
        """The agent's registrations on the path."""
        return [
            self.registrations[step.call.id]
            for step in self.path.steps
            if step.call.id in self.registrations
        ]

    def started_step(self, call: Call, observation: Observation) -> Step:
        """The step of a call that starts now; the first call of a reply takes its rationale and provider state."""
        rationale, self.rationale = self.rationale, ""
        return Step(rationale, call, observation, self.states.pop(call.group, None))

    def add(self, step: Step) -> None:
        """Insert the step in order."""
        self.places.setdefault(step.call.id, (len(self.places), 0))
        self.steps[step.call.id] = step
        steps = sorted((*self.path.steps, step), key=lambda step: self.places[step.call.id])
        self.path = replace(self.path, steps=tuple(steps))


class Memory:
    """A session's messages, registered tools and undoable turns, updated with each event."""

    def __init__(self, catalog: Catalog, past: Iterable[Event] = ()) -> None:
        """Registrations of tools that are no longer in the catalog are ignored."""
        self._catalog = catalog
        self._open: _OpenTurn | None = None
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
        """The last written plan."""
        self.plan_quote: Quote | None = None
        """The quote of that plan."""
        self.number = 0
        """Number of the last turn; 0 before the first."""
        for event in past:
            self.see(event)
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
        return None if self._open is None else _past_turn(self._open, "", None)

    @property
    def contexts(self) -> tuple[str, ...]:
        """The workspace contexts in the messages, which small models do not read."""
        return tuple(turn.context for turn in self.turns if turn.context)

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
        """Process the next event."""
        match event:
            case TurnStarted():
                self._close(
                    "interrupted", None
                )  # a killed process may have left the previous turn open
                self._open = _OpenTurn(
                    event, self.commands, self.shown, path_of(event.question, event.attachments)
                )
                self.commands, self.number = (), event.turn
                self.shown = replace(
                    self.shown, todo=() if is_done(self.shown.todo) else self.shown.todo
                )
            case TodoChanged() | PlanWritten() | Quote():
                self._see_work(event)
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
                self.shown = Shown(presentation=self.shown.presentation, todo=self.shown.todo)
                if (turn := self._open) is not None:  # undoing it does not restore earlier turns
                    turn.before = self.shown
            case ResultsTrimmed():
                self._trim(event)
            case ToolUnregistered():
                self.library = self.library.without((event.name,))
            case ToolRegistered() if event.text or event.name in self._catalog:
                tool = RegisteredTool(event.name, event.tokens, event.by, event.text)
                self.library = self.library.including([tool])
                if (turn := self._open) is not None and event.by in ("agent", "first_call"):
                    call_id = event.id or event.name  # sessions of old versions have no ID
                    turn.registrations[call_id] = tool
                    self.shown = replace(self.shown, schemas=self.shown.schemas | {event.name})
                    if event.by == "first_call":
                        return
                    result = event.text or self.presentation.registration_result(
                        self._catalog.schema(event.name)
                    )
                    call = Call(TOOL_REGISTER, {"tool_name": event.name}, call_id, event.group)
                    turn.add(turn.started_step(call, Observation(result)))
            case _ if self._open is not None:
                self._follow(self._open, event)
            case _:
                pass

    def _see_work(self, event: TodoChanged | PlanWritten | Quote) -> None:
        """Follow the task list and the last written plan."""
        if isinstance(event, TodoChanged):
            self.shown = replace(self.shown, todo=event.items)
        elif isinstance(event, PlanWritten):
            self.plan = event
        elif event.kind == "plan":
            self.plan_quote = event

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
        past = _past_turn(turn, turn.answer or f"[{status}]", spent_nano)
        if turn.refused and status == "error":  # keeping it would have every later question refused
            past = replace(past, commands=(), messages=(), context="")
            self.commands, self.shown = turn.commands + self.commands, turn.before
        self.turns.append(past)

    def _trim(self, event: ResultsTrimmed) -> None:
        """Shorten these results wherever models read them."""
        ids = {(result.turn, result.id) for result in event.results}
        if (turn := self._open) is not None:
            open_turn = {
                result.id: event.characters
                for result in event.results
                if result.turn == turn.started.turn
            }
            turn.condensed = replace(
                turn.condensed, trimmed={**turn.condensed.trimmed, **open_turn}
            )
        for index, past in enumerate(self.turns):
            messages = tuple(
                trimmed_message(message, event.characters)
                if message.speaker == "tool"
                and message.call
                and (past.number, message.call.id) in ids
                else message
                for message in past.messages
            )
            self.turns[index] = replace(past, messages=messages)

    def _follow(self, turn: _OpenTurn, event: Event) -> None:
        """Process one event of the open turn."""
        match event:
            case ContextTold():
                turn.context = event.text
                self.shown = replace(self.shown, context=event)
            case ToolsOffered():
                self._follow_offer(turn, event)
            case Rationale():
                turn.rationale = event.text
            case ErrorHappened(kind="UsageError" | "ContextExceeded"):
                turn.refused = not turn.steps
            case ModelReplied() if event.message:
                turn.states[event.group] = ProviderState(event.family, event.message)
            case Answer():
                turn.answer = event.text
                latest = list(turn.states.values())[-1:]
                text = event.text.strip()
                states = [
                    state
                    for state in latest
                    if (state.message.get("content") or "").strip() == text
                ]
                turn.answer_state = (
                    states[0] if states and not client_calls(states[0].message) else None
                )
                self.answers.append(event.text)
            case CallStarted() if event.name != FINISH and event.role != PROGRAM:
                wrapped = {"name": event.name, "arguments": event.arguments}
                name, arguments = (
                    (event.through, wrapped) if event.through else (event.name, event.arguments)
                )
                call = Call(name, arguments, event.id, event.group)
                turn.calls[event.id] = turn.started_step(call, Observation(""))
                turn.places.setdefault(event.id, (len(turn.places), 0))
            case CallFinished() if event.id in turn.calls:
                if not event.refused:
                    turn.ran.add(event.name)
                observation = Observation(
                    event.observation,
                    event.ok,
                    event.truncated,
                    event.seconds,
                    event.refused,
                    images=event.images,
                )
                turn.add(replace(turn.calls.pop(event.id), observation=observation))
            case SubagentFinished():
                turn.ran.update(event.changed_by)
            case GraphPlanned():
                turn.graph, turn.graph_place = tuple(node.label for node in event.nodes), None
            case NodeChanged() if event.call and event.label in turn.graph:
                turn.graph_place = (
                    len(turn.places) if turn.graph_place is None else turn.graph_place
                )
                # setdefault: a call made for an earlier graph keeps its place
                turn.places.setdefault(
                    event.call, (turn.graph_place, turn.graph.index(event.label))
                )
            case BranchLeft():
                self._backtrack(turn, event)
            case CallJudged() if event.note and event.id in turn.steps:
                old = turn.steps[event.id]
                new = turn.steps[event.id] = replace(
                    old, observation=replace(old.observation, note=event.note)
                )
                turn.path = replace(
                    turn.path, steps=tuple(new if step is old else step for step in turn.path.steps)
                )
            case _:
                pass

    def _follow_offer(self, turn: _OpenTurn, event: ToolsOffered) -> None:
        turn.listing, turn.advice, turn.budget = event.listing, event.advice, event.budget
        presentation = (
            self.shown.presentation
        )  # the first turn with it determines what its array declares
        if presentation is None or presentation.name != event.presentation:
            declared = event.declared or (*self.library.names, *event.upfront)
            registers = (
                not set(event.names).issuperset(self._catalog.names) if event.declared else None
            )
            registers = not self._catalog.is_all(declared) if registers is None else registers
            presentation = presentation_of(event.presentation, declared, registers=registers)
        self.shown = replace(self.shown, presentation=presentation)
        if event.listing:
            listed = {*event.upfront, *self.library.names} - (
                presentation.declared if presentation else set()
            )
            names, schemas = (
                self.shown.names | {*event.names, *event.skills},
                self.shown.schemas | listed,
            )
            self.shown = replace(self.shown, names=names, schemas=schemas)

    def _backtrack(self, turn: _OpenTurn, event: BranchLeft) -> None:
        """Return to another path, and drop what only the abandoned path had registered."""
        abandoned = {tool.name for tool in turn.registered}
        steps = tuple(turn.steps[call] for call in event.path if call in turn.steps)
        turn.path, turn.rationale = replace(turn.path, steps=steps), ""
        turn.calls.clear()
        registered = turn.registered
        self.library = self.library.without(abandoned).including(registered)
        schemas = self.shown.schemas - abandoned | {tool.name for tool in registered}
        self.shown = replace(self.shown, schemas=schemas)


def _past_turn(turn: _OpenTurn, ending: str, spent_nano: int | None) -> PastTurn:
    """The turn so far; its last message is the `ending`, if any."""
    question, attachments = turn.started.question, turn.started.attachments
    text = asked_text(question, attachments, turn.commands)
    opening = opening_text(
        turn.listing, text, advice=turn.advice, context=turn.context, budget=turn.budget
    )
    condensed, path = turn.condensed, turn.path
    last = (Message("assistant", ending, state=turn.answer_state),) if ending else ()
    return PastTurn(
        number=turn.started.turn,
        question=question,
        attachments=attachments,
        commands=turn.commands,
        before=turn.before,
        messages=(*path_messages(condensed.opening(opening, path), condensed.path(path)), *last),
        ran=frozenset(turn.ran),
        registered=tuple(tool.name for tool in turn.registered),
        spent_nano=spent_nano,
        context=turn.context,
        copies=turn.started.copies or str(turn.started.turn),
        listing="\n\n".join(filter(None, (turn.listing, turn.advice))),
    )


def opening_text(
    listing: str, question: str, *, advice: str = "", context: str = "", budget: str = ""
) -> str:
    """The first message of a turn: names, workspace context, plan advice, question and budget line.

    The names come first because they are the same in every session.
    """
    return "\n\n".join(part for part in (listing, context, advice, question, budget) if part)


def asked_text(
    question: str, attachments: Sequence[Attachment] = (), commands: Sequence[CommandRan] = ()
) -> str:
    """The question as a model reads it, after shell commands and before attachments."""
    parts: list[str] = []
    for command in commands:
        failed = "" if command.ok else " It failed."
        parts.append(
            f"I ran a command: {command.command}\nThis is its output.{failed}\n{fenced(command.output)}"
        )
    parts.append(question)
    for attachment in attachments:
        text = attachment.text
        parts.append(text if attachment.image else f"{attachment.name}:\n{fenced(text)}")
    return "\n\n".join(filter(None, parts))


def path_of(question: str, attachments: Sequence[Attachment] = ()) -> Path:
    """The empty path of a turn, with its question and images."""
    images = (attachment.image for attachment in attachments)
    return Path(question, images=tuple(image for image in images if image is not None))


def summary_messages(summary: str) -> tuple[Message, ...]:
    """The messages that replace compacted turns."""
    return (
        Message("user", f"What was said and done so far, in short:\n{summary}"),
        Message("assistant", "Noted."),
    )


def next_view(
    memory: Memory,
    catalog: Catalog,
    question: str = _QUESTION,
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
    new_names = [
        name
        for name in (catalog.names if names is None else names)
        if name not in memory.shown.names
    ]
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
