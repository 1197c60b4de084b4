"""One turn as models read it, finished or open, rebuilt from its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ecoshell.agent.view import Condensed, opening_text, path_messages, question_text
from ecoshell.catalog import Presentation, RegisteredTool
from ecoshell.events import (
    Answer,
    BudgetHeld,
    CallFinished,
    CallJudged,
    CallStarted,
    CommandRan,
    ContextTold,
    ErrorHappened,
    Event,
    GraphPlanned,
    ModelReplied,
    NodeChanged,
    Rationale,
    StepProposed,
    SubagentFinished,
    TextArrived,
    TodoItem,
    TurnStarted,
)
from ecoshell.events.turn import CALL_BEGINS
from ecoshell.messages import FINISH, PROGRAM, Attachment, Call, Message, Observation, ProviderState
from ecoshell.models.tool_search import client_calls
from ecoshell.strategies import Path, Step


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model has seen in earlier turns, so that it is not repeated."""

    names: frozenset[str] = frozenset()
    schemas: frozenset[str] = frozenset()
    context: ContextTold | None = None
    presentation: Presentation | None = None
    """The session's presentation, which stays the same so that each prompt is a prefix of the next."""
    todo: tuple[TodoItem, ...] = ()
    ends: frozenset[str] = frozenset()
    """IDs of background commands of whose end the model has read."""


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
    line: str = ""
    """The typed line whose custom command has given the question; empty if the question was typed."""


@dataclass(slots=True)
class OpenTurn:
    """A turn that is being rebuilt from its events."""

    started: TurnStarted
    commands: tuple[CommandRan, ...]
    before: Shown
    path: Path
    context: str = ""
    listing: str = ""
    advice: str = ""
    budget: str = ""
    ends: Mapping[str, str] = field(default_factory=dict[str, str])
    rationale: str = ""
    arrived: list[str] = field(default_factory=list[str])
    """Streamed text of the reply that is being written, with the channel of the last piece in `channel`."""
    channel: str = ""
    cut_text: str = ""
    """The reply's text so far, if the output limit cut it and the next model call continues it."""
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
        calls = [step.call.id for step in self.path.steps]
        return [self.registrations[call] for call in calls if call in self.registrations]

    def started_step(self, call: Call, observation: Observation) -> Step:
        """The step of a call that starts now; the first call of a reply takes its rationale and provider state."""
        rationale, self.rationale = self.rationale, ""
        self._end_reply()
        return Step(rationale, call, observation, self.states.pop(call.group, None))

    def add(self, step: Step) -> None:
        self.places.setdefault(step.call.id, (len(self.places), 0))
        self.steps[step.call.id] = step
        steps = sorted((*self.path.steps, step), key=lambda step: self.places[step.call.id])
        self.path = replace(self.path, steps=tuple(steps))

    def see(self, event: Event) -> None:
        """Process an event that concerns nothing but the turn."""
        match event:
            case TextArrived() | BudgetHeld() | ModelReplied():
                self._see_reply(event)
            case StepProposed():
                self._end_reply()
            case Rationale():
                self.rationale = event.text
                self._end_reply()
            case ErrorHappened(kind="UsageError" | "ContextExceeded"):
                self.refused = not self.steps
            case Answer():
                self.answer, text, state = event.text, event.text.strip(), None
                if self.states:
                    state = list(self.states.values())[-1]
                    is_same = (state.message.get("content") or "").strip() == text
                    state = state if is_same and not client_calls(state.message) else None
                self.answer_state = state
            case CallStarted() if event.name != FINISH and event.role != PROGRAM:
                name, arguments = event.name, event.arguments
                if event.through:
                    name, arguments = event.through, {"name": name, "arguments": arguments}
                call = Call(name, arguments, event.id, event.group)
                self.calls[event.id] = self.started_step(call, Observation(""))
                self.places.setdefault(event.id, (len(self.places), 0))
            case CallFinished() if event.id in self.calls:
                if not event.refused:
                    self.ran.add(event.name)
                figures = (event.ok, event.truncated, event.seconds, event.refused)
                observation = Observation(event.observation, *figures, images=event.images)
                self.add(replace(self.calls.pop(event.id), observation=observation))
            case SubagentFinished():
                self.ran.update(event.changed_by)
            case GraphPlanned():
                self.graph, self.graph_place = tuple(node.label for node in event.nodes), None
            case NodeChanged() if event.call and event.label in self.graph:
                if self.graph_place is None:
                    self.graph_place = len(self.places)
                # setdefault: a call made for an earlier graph keeps its place
                place = (self.graph_place, self.graph.index(event.label))
                self.places.setdefault(event.call, place)
            case CallJudged() if event.note and event.id in self.steps:
                self._note(event.id, event.note)
            case _:
                pass

    def _see_reply(self, event: TextArrived | BudgetHeld | ModelReplied) -> None:
        """Collect the text of a reply, which several model calls may write."""
        match event:
            case TextArrived() if event.channel != "reasoning" and not event.node:
                if self.arrived and event.channel != self.channel:
                    self.arrived.append("\n\n")
                self.channel = event.channel
                self.arrived.append(event.text)
            case BudgetHeld():  # a new reply, another attempt, or a continuation
                self.arrived = [self.cut_text] if self.cut_text else []
            case ModelReplied():
                is_cut = event.finish == "length" and not event.calls
                is_continued = is_cut and not event.has_unusable_call
                self.cut_text = "".join(self.arrived) if is_continued else ""
                if event.message:
                    self.states[event.group] = ProviderState(event.family, event.message)
            case _:
                pass

    def _end_reply(self) -> None:
        """Forget the streamed text of a reply that other events contain."""
        self.arrived.clear()
        self.cut_text = ""

    def ending(self, status: str) -> str:
        """The last message: the answer, or what was written of it until the turn ended without one."""
        if self.answer:
            return self.answer
        text = "".join(self.arrived).strip()
        written = "" if text.startswith(CALL_BEGINS) else text
        return "\n\n".join(filter(None, (self.rationale.strip(), written, f"[{status}]")))

    def _note(self, call: str, note: str) -> None:
        old = self.steps[call]
        new = self.steps[call] = replace(old, observation=replace(old.observation, note=note))
        steps = tuple(new if step is old else step for step in self.path.steps)
        self.path = replace(self.path, steps=steps)

    def past(self, ending: str, spent_nano: int | None) -> PastTurn:
        """The turn so far; its last message is the `ending`, if any."""
        question, attachments = self.started.question, self.started.attachments
        text = question_text(question, attachments, self.commands)
        opening = opening_text(
            self.listing,
            text,
            advice=self.advice,
            context=self.context,
            budget=self.budget,
            ends=self.ends,
        )
        condensed, path = self.condensed, self.path
        messages = path_messages(condensed.opening(opening, path), condensed.path(path))
        last = (Message("assistant", ending, state=self.answer_state),) if ending else ()
        return PastTurn(
            number=self.started.turn,
            question=question,
            attachments=attachments,
            commands=self.commands,
            before=self.before,
            messages=(*messages, *last),
            ran=frozenset(self.ran),
            registered=tuple(tool.name for tool in self.registered),
            spent_nano=spent_nano,
            context=self.context,
            copies=self.started.copies or str(self.started.turn),
            listing="\n\n".join(filter(None, (self.listing, self.advice))),
            line=self.started.line,
        )
