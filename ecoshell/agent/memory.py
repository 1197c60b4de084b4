"""What models are told of a session, read from its events: live, resumed and after a kill it is the same."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ecoshell.agent.mode import View
from ecoshell.catalog import STABLE, Catalog, Presentation, Skill, SkillLibrary, presentation_of
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
    Rationale,
    ResultsTrimmed,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import (
    FINISH,
    META_TOOLS,
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
"""Stands for a question of usual length."""
LARGE_CONTEXT = 32_000
"""Tokens; smaller contexts have their oldest results cut one by one, larger ones are compacted."""
LEAST_OUTPUT = 1_024
"""Tokens of output that a request in a large context must have room for."""
_CUT_KEEPS = 80
"""Characters an observation keeps when it is cut."""
_TRIM_STEPS = (4_000, 1_200, 400, _CUT_KEEPS)
"""Characters that stay of each result, tried in turn."""
_DONE_SO_FAR = "What was done for this so far, in short (the earlier steps are no longer shown):"
_NEVER_CUT = META_TOOLS - {TOOL_CALL}
"""Calls whose results are documents, or short."""


def path_messages(opening: str, path: Path) -> tuple[Message, ...]:
    """The turn as messages: the opening, then each reply of the assistant followed by the results of its calls."""
    messages = [Message("user", opening, images=path.images)]
    for steps in reply_groups(path.steps):
        calls = tuple(step.call for step in steps)
        messages.append(Message("assistant", steps[0].rationale, calls, state=steps[0].state))
        seen = ((step.observation, step.call) for step in steps)
        messages += [Message("tool", one.full_text, (call,), images=one.images) for one, call in seen]
    return tuple(messages)


def reply_groups(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """The steps by the reply that made them; a step without a reply of its own is a group."""
    numbered = groupby(enumerate(steps), lambda pair: pair[1].call.group or pair[0])
    return [tuple(step for _, step in group) for _, group in numbered]


def is_trimmable(call: Call | None) -> bool:
    """Whether the call's result may be shortened: tool schemas and other meta-tool results may not."""
    return call is None or call.name not in _NEVER_CUT


def trimmed(text: str, characters: int, tool: str) -> str:
    """The beginning and the end of a result, and between them how to get the rest again."""
    if len(text) <= characters:
        return text
    end = characters // 3
    left_out = len(text) - characters
    marker = f"[{left_out:,} characters left out here to make room. Call {tool} again to see what you need of them.]"
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
    """Results of registrations among them: models need the schemas still."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """By the ID of its call, the characters that stay of a result."""

    @property
    def forgotten(self) -> frozenset[str]:
        """IDs of calls whose results models no longer read in full, so that making them again is no repetition."""
        return self.calls | self.trimmed.keys()

    def including(self, event: Compacted, path: Path) -> "Condensed":
        """The same after a summary has replaced steps of this path."""
        calls = frozenset(event.calls)
        registrations = (step for step in path.steps if step.call.id in calls and step.call.name == TOOL_REGISTER)
        schemas = tuple(dict.fromkeys(step.observation.text for step in registrations if step.observation.ok))
        return replace(self, summary=event.summary, calls=calls, schemas=schemas)

    def path(self, path: Path) -> Path:
        """The path as models read it; whole if it goes back to before the summary's end."""
        steps = path.steps
        if self._applies_to(path):
            steps = tuple(step for step in steps if step.call.id not in self.calls)
        return replace(path, steps=tuple(map(self._step, steps))) if self.forgotten else path

    def opening(self, opening: str, path: Path) -> str:
        """The question as models read it, with the summary of what was done for it."""
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
        seen = step.observation
        return replace(step, observation=replace(seen, text=trimmed(seen.text, characters, step.call.subject)))


def fit(messages: tuple[Message, ...], enough: Callable[[tuple[Message, ...]], bool]) -> tuple[Message, ...]:
    """The messages with the oldest observations cut until `enough` says so; documents are never cut (SPEC §4)."""
    if enough(messages):
        return messages
    shortened = list(messages)
    for index, message in enumerate(messages):
        if message.speaker != "tool" or (message.call and message.call.name in _NEVER_CUT):
            continue
        if len(message.text) > 2 * _CUT_KEEPS:
            gone = len(message.text) - _CUT_KEEPS
            text = f"{message.text[:_CUT_KEEPS]} [cut: {gone} characters, to make room]"
            shortened[index] = replace(message, text=text, images=())
        elif message.images:
            shortened[index] = replace(message, images=())
        if enough(tuple(shortened)):
            break
    return tuple(shortened)


def fit_together(messages: tuple[Message, ...], enough: Callable[[tuple[Message, ...]], bool]) -> tuple[Message, ...]:
    """The messages with all results trimmed alike, no more than `enough` demands; schemas are never trimmed."""
    shortened = messages
    for characters in _TRIM_STEPS:
        if enough(shortened):
            break
        shortened = tuple(
            trimmed_message(one, characters) if one.speaker == "tool" and is_trimmable(one.call) else one
            for one in messages
        )
    return shortened


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model was told in earlier turns of the session, and need not be told again."""

    names: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()
    context: ContextTold | None = None
    """What it was told of where it works."""
    presentation: Presentation | None = None
    """The session keeps its presentation, so that what was sent stays a prefix of what is sent next."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn that is over: what it asked, what it did, and how models are told of it."""

    number: int
    question: str
    attachments: tuple[Attachment, ...]
    commands: tuple[CommandRan, ...]
    """What the person had run before it, which its question carried along."""
    before: Shown
    messages: tuple[Message, ...]
    """None of a question that was never sent."""
    ran: frozenset[str]
    """The tools that ran, whether they succeeded or not."""
    registered: tuple[str, ...] = ()
    """Tools the agent registered in it."""
    spent_nano: int | None = None
    """None when a part of it is unknown, or the turn never ended."""
    context: str = ""
    """What stands at the head of its question, of where it works."""
    copies: str = ""
    """The name of the copies of what files were before it."""
    listing: str = ""
    """What stands before its question of tools: names, schemas, and what the plan says."""


@dataclass(slots=True)
class _OpenTurn:
    """One turn being read from its events."""

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
    """By its group, what a reply's provider expects back; taken out by the reply's first call."""
    answer_state: ProviderState | None = None
    calls: dict[str, Step] = field(default_factory=dict[str, Step])
    """The calls that are under way, by their IDs; their observations are still missing."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """By what steps are in order, by the ids of their calls: as they were made, those of a tool graph as its nodes
    stand, whatever came back first."""
    graph: tuple[str, ...] = ()
    """The labels of the tool graph that was made last, in its order."""
    graph_place: int | None = None
    """Where the steps of that plan begin; None before its first."""
    answer: str = ""
    ran: set[str] = field(default_factory=set[str])
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    """All steps of all branches, by the ids of their calls."""
    skills: dict[str, Skill] = field(default_factory=dict[str, Skill])
    """What the agent registered on all branches, by the ids of its calls."""
    condensed: Condensed = field(default_factory=Condensed)
    refused: bool = False
    """Whether its question was never sent, as one that is longer than the model's context."""

    @property
    def registered(self) -> list[Skill]:
        """What the agent registered on the path."""
        return [self.skills[step.call.id] for step in self.path.steps if step.call.id in self.skills]

    def started_step(self, call: Call, observation: Observation) -> Step:
        """The step of a call that starts now; the first call of a reply takes its rationale and provider state."""
        rationale, self.rationale = self.rationale, ""
        return Step(rationale, call, observation, self.states.pop(call.group, None))

    def add(self, step: Step) -> None:
        """Put the step into its place."""
        self.places.setdefault(step.call.id, (len(self.places), 0))
        self.steps[step.call.id] = step
        steps = sorted((*self.path.steps, step), key=lambda one: self.places[one.call.id])
        self.path = replace(self.path, steps=tuple(steps))


class Memory:
    """A session so far, one event after another: its messages, its skill library, and what may be taken back."""

    def __init__(self, catalog: Catalog, past: Iterable[Event] = ()) -> None:
        """Tools that are gone from the catalog are left out."""
        self._catalog = catalog
        self._open: _OpenTurn | None = None
        self.summary = ""
        """Of what was compacted; empty before the first compaction."""
        self.turns: list[PastTurn] = []
        """The turns models are told of one by one, compacted ones left out."""
        self.commands: tuple[CommandRan, ...] = ()
        """What the person ran since the last question; it goes along with the next one."""
        self.shown = Shown()
        self.library = SkillLibrary()
        self.answers: list[str] = []
        self.number = 0
        """Of the last turn; 0 before the first."""
        for event in past:
            self.see(event)
        self._close("interrupted", None)  # the process was killed in this turn

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every turn that is over, as models are told of it; what was compacted as its summary."""
        compacted = summary_messages(self.summary) if self.summary else ()
        return (*compacted, *(message for turn in self.turns for message in turn.messages))

    @property
    def condensed(self) -> Condensed:
        """How models read the turn that is open."""
        return Condensed() if self._open is None else self._open.condensed

    @property
    def open_turn(self) -> PastTurn | None:
        """The turn that runs, as far as it has come."""
        return None if self._open is None else _past_turn(self._open, "", None)

    @property
    def contexts(self) -> tuple[str, ...]:
        """What the messages hold of where the agent works; small models are not told of it."""
        return tuple(turn.context for turn in self.turns if turn.context)

    @property
    def presentation(self) -> Presentation:
        """How tools are put before the model; settled in the session's first turn."""
        return self.shown.presentation or STABLE

    @property
    def last_turn(self) -> PastTurn:
        """The turn that could be taken back; raises UsageError when there is none."""
        if self.turns:
            return self.turns[-1]
        if self.summary:
            raise UsageError("What came before was compacted into a summary, and cannot be undone turn by turn.")
        raise UsageError("There is no turn in this session.", fix="Ask something.")

    def see(self, event: Event) -> None:
        """Take the next event into account."""
        match event:
            case TurnStarted():
                self._close("interrupted", None)  # a process that was killed left the turn before it open
                self._open = _OpenTurn(event, self.commands, self.shown, path_of(event.question, event.attachments))
                self.commands, self.number = (), event.turn
            case TurnFinished():
                self._close(event.status, event.consumption.nano)
            case CommandRan():
                self.commands += (event,)
            case TurnUndone():  # what the turn registered stays in the library and will be shown again
                if self.turns and self.turns[-1].number == event.turn:
                    turn = self.turns.pop()
                    self.commands, self.shown = turn.commands + self.commands, turn.before
            case Compacted() if event.calls:
                if (turn := self._open) is not None:
                    turn.condensed = turn.condensed.including(event, turn.path)
            case Compacted():
                self.summary, self.turns = event.summary, []
                self.shown = Shown(presentation=self.shown.presentation)
                if (turn := self._open) is not None:  # undoing it does not bring the earlier turns back
                    turn.before = self.shown
            case ResultsTrimmed():
                self._trim(event)
            case ToolUnregistered():
                self.library = self.library.without((event.name,))
            case ToolRegistered() if event.name in self._catalog:
                skill = Skill(event.name, event.tokens, event.by)
                self.library = self.library.including([skill])
                if (turn := self._open) is not None and event.by in ("agent", "first_call"):
                    call = event.id or event.name  # sessions of old versions did not keep the id
                    turn.skills[call] = skill
                    self.shown = replace(self.shown, documents=self.shown.documents | {event.name})
                    if event.by == "first_call":
                        return
                    result = self.presentation.registration_result(self._catalog.document(event.name))
                    made = Call(TOOL_REGISTER, {"tool_name": event.name}, call, event.group)
                    turn.add(turn.started_step(made, Observation(result)))
            case _ if self._open is not None:
                self._follow(self._open, event)
            case _:
                pass

    def _close(self, status: str, spent_nano: int | None) -> None:
        """The turn that is open, if one is, is over; a call that never came back is told as stopped."""
        turn, self._open = self._open, None
        if turn is None:
            return
        for step in turn.calls.values():
            subject = step.call.subject
            turn.ran.add(subject)
            stopped = Observation(f"The turn ended before {subject} did.", ok=False)
            turn.add(replace(step, observation=stopped))
        past = _past_turn(turn, turn.answer or f"[{status}]", spent_nano)
        if turn.refused and status == "error":  # told with every question after it, it would have them all refused
            past = replace(past, commands=(), messages=(), context="")
            self.commands, self.shown = turn.commands + self.commands, turn.before
        self.turns.append(past)

    def _trim(self, event: ResultsTrimmed) -> None:
        """Shorten these results wherever models read them."""
        shortened = {(result.turn, result.id) for result in event.results}
        if (turn := self._open) is not None:
            mine = {result.id: event.characters for result in event.results if result.turn == turn.started.turn}
            turn.condensed = replace(turn.condensed, trimmed={**turn.condensed.trimmed, **mine})
        for at, past in enumerate(self.turns):
            messages = tuple(
                trimmed_message(one, event.characters)
                if one.speaker == "tool" and one.call and (past.number, one.call.id) in shortened
                else one
                for one in past.messages
            )
            self.turns[at] = replace(past, messages=messages)

    def _follow(self, turn: _OpenTurn, event: Event) -> None:
        """Take one event of the turn that is open into it."""
        match event:
            case ContextTold():
                turn.context = event.text
                self.shown = replace(self.shown, context=event)
            case ToolsOffered():
                turn.listing, turn.advice, turn.budget = event.listing, event.advice, event.budget
                presentation = self.shown.presentation  # what the array declares, the first turn that had it settled
                if presentation is None or presentation.name != event.presentation:
                    declared = (*self.library.names, *event.upfront)
                    registers = not self._catalog.is_all(declared)
                    presentation = presentation_of(event.presentation, declared, registers=registers)
                self.shown = replace(self.shown, presentation=presentation)
                if event.listing:
                    told = {*event.upfront, *self.library.names} - (presentation.declared if presentation else set())
                    names, documents = self.shown.names | set(event.names), self.shown.documents | told
                    self.shown = replace(self.shown, names=names, documents=documents)
            case Rationale():
                turn.rationale = event.text
            case ErrorHappened(kind="UsageError" | "ContextExceeded"):
                turn.refused = not turn.steps
            case ModelReplied() if event.message:
                turn.states[event.group] = ProviderState(event.family, event.message)
            case Answer():
                turn.answer = event.text
                last = list(turn.states.values())[-1:]
                said = [state for state in last if (state.message.get("content") or "").strip() == event.text.strip()]
                turn.answer_state = said[0] if said and not client_calls(said[0].message) else None
                self.answers.append(event.text)
            case CallStarted() if event.name != FINISH:
                inside = {"name": event.name, "arguments": event.arguments}  # of a call as the model made it
                name, arguments = (event.through, inside) if event.through else (event.name, event.arguments)
                call = Call(name, arguments, event.id, event.group)
                turn.calls[event.id] = turn.started_step(call, Observation(""))
                turn.places.setdefault(event.id, (len(turn.places), 0))  # after the calls before it
            case CallFinished() if event.id in turn.calls:
                if not event.refused:
                    turn.ran.add(event.name)
                seen = Observation(
                    event.observation, event.ok, event.truncated, event.seconds, event.refused, images=event.images
                )
                turn.add(replace(turn.calls.pop(event.id), observation=seen))
            case GraphPlanned():
                turn.graph, turn.graph_place = tuple(node.label for node in event.nodes), None
            case NodeChanged() if event.call and event.label in turn.graph:
                turn.graph_place = len(turn.places) if turn.graph_place is None else turn.graph_place
                # a call that was made for an earlier plan stays where it is
                turn.places.setdefault(event.call, (turn.graph_place, turn.graph.index(event.label)))
            case BranchLeft():  # what only the path that is left had registered is not, nor shown, any more
                before = {skill.name for skill in turn.registered}
                steps = tuple(turn.steps[call] for call in event.path if call in turn.steps)
                turn.path, turn.rationale = replace(turn.path, steps=steps), ""
                turn.calls.clear()
                after = turn.registered
                self.library = self.library.without(before).including(after)
                documents = self.shown.documents - before | {skill.name for skill in after}
                self.shown = replace(self.shown, documents=documents)
            case CallJudged() if event.note and event.id in turn.steps:
                step = turn.steps[event.id]
                noted = turn.steps[event.id] = replace(step, observation=replace(step.observation, note=event.note))
                turn.path = replace(turn.path, steps=tuple(noted if one is step else one for one in turn.path.steps))
            case _:
                pass


def _past_turn(turn: _OpenTurn, ending: str, spent_nano: int | None) -> PastTurn:
    """The turn as it stands, its last message the `ending`, if there is one."""
    question, attachments = turn.started.question, turn.started.attachments
    asked = asked_text(question, attachments, turn.commands)
    opening = opening_text(turn.listing, asked, advice=turn.advice, context=turn.context, budget=turn.budget)
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
        registered=tuple(skill.name for skill in turn.registered),
        spent_nano=spent_nano,
        context=turn.context,
        copies=turn.started.copies or str(turn.started.turn),
        listing="\n\n".join(filter(None, (turn.listing, turn.advice))),
    )


def opening_text(listing: str, asked: str, *, advice: str = "", context: str = "", budget: str = "") -> str:
    """How a turn opens: names to register, then the workspace, the plan's advice, the question and the budget line.

    The names come first because they are the same in every session, which the rest is not.
    """
    return "\n\n".join(part for part in (listing, context, advice, asked, budget) if part)


def asked_text(question: str, attachments: Sequence[Attachment] = (), commands: Sequence[CommandRan] = ()) -> str:
    """The question as a model reads it: after what the person ran, and before what goes along with it."""
    parts: list[str] = []
    for ran in commands:
        failed = "" if ran.ok else " It failed."
        parts.append(f"I ran a command: {ran.command}\nThis is its output.{failed}\n{fenced(ran.output)}")
    parts.append(question)
    for attached in attachments:
        parts.append(attached.text if attached.image else f"{attached.name}:\n{fenced(attached.text)}")
    return "\n\n".join(filter(None, parts))


def path_of(question: str, attachments: Sequence[Attachment] = ()) -> Path:
    """Where a turn begins: its question, with the images that go along with it."""
    return Path(question, images=tuple(one.image for one in attachments if one.image is not None))


def summary_messages(summary: str) -> tuple[Message, ...]:
    """What stands in the place of the turns that were compacted."""
    return (Message("user", f"What was said and done so far, in short:\n{summary}"), Message("assistant", "Noted."))


def next_view(
    memory: Memory,
    catalog: Catalog,
    question: str = _QUESTION,
    *,
    names: Sequence[str] | None = None,
    context: str = "",
    defers: bool = False,
) -> View:
    """What a model would be shown if this question, or one of usual length, came now.

    `names` are listed, else all; `context` is what it would be told of where it works; `defers` says that the model's
    provider loads deferred tools.
    """
    documents = catalog.documents_of(memory.library.skills)
    untold = [name for name in (catalog.names if names is None else names) if name not in memory.shown.names]
    unseen = [document for document in documents if document.name not in memory.shown.documents]
    listing = memory.presentation.opening(untold, unseen, servers=catalog.servers)
    return View(
        path=Path(question),
        opening=opening_text(listing, question, context=context),
        history=memory.messages,
        contexts=memory.contexts,
        known=catalog.names,
        registered=documents,
        presentation=memory.presentation,
        deferrable=catalog.documents if defers and memory.presentation.deferred else (),
    )
