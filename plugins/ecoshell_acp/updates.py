"""Converts a session's events to protocol updates, live and on replay (Agent Client Protocol v1)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from acp import schema

from ecoshell.catalog import Catalog
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    CallJudged,
    CallStarted,
    CommandRan,
    CostChosen,
    CostWanted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitChosen,
    LimitHit,
    NodeChanged,
    NodeState,
    PlanChanged,
    Quote,
    QuoteChosen,
    Rationale,
    Reasoned,
    StepStarted,
    TextArrived,
    ToolRegistered,
    TrustGiven,
    TrustWanted,
    TurnFinished,
    TurnStarted,
)
from ecoshell.events.lines import Line
from ecoshell.events.turn import CALL_BEGINS
from ecoshell.messages import FINISH, Call, Effect, visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.markdown import fenced
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tools import Subject, subjects_of
from ecoshell_acp.diffs import hunks_of

Chunk = schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk
Update = Chunk | schema.ToolCallStart | schema.ToolCallProgress | schema.AgentPlanUpdate
Content = schema.ContentToolCallContent | schema.FileEditToolCallContent
Question = ApprovalWanted | LimitHit | CostWanted | TrustWanted | Quote
"""An event that asks the user for a decision."""

_CHUNKS: Mapping[type[Chunk], str] = {
    schema.UserMessageChunk: "user_message_chunk",
    schema.AgentMessageChunk: "agent_message_chunk",
    schema.AgentThoughtChunk: "agent_thought_chunk",
}
_TITLE_CHARACTERS = 160
_KINDS: Mapping[Effect, schema.ToolKind] = {
    "execute": "execute",
    "write": "edit",
    "network": "fetch",
    "read": "read",
}
"""Kinds of built-in tools, by the first of these effects that a tool has."""
_SEARCHES = frozenset({"search_text", "list_files"})
_NODES: Mapping[NodeState, schema.PlanEntryStatus] = {
    "waiting": "pending",
    "running": "in_progress",
}
"""Status by node state; all other states are completed."""


@dataclass(slots=True, eq=False)
class Updates:
    """Converts the events of one session in order; a text that was streamed is not sent again as a whole."""

    catalog: Catalog
    root: str
    """The workspace."""
    _turn: int = 0
    _messages: int = 0
    """Number of messages so far; it is part of each message's ID."""
    _open: tuple[str, str] = ("", "")
    """Channel and role of the text being streamed."""
    _step_texts: list[tuple[type[Chunk], str]] = field(
        default_factory=list[tuple[type[Chunk], str]]
    )
    """The texts of this step, each with its kind."""
    _withheld: bool = False
    """Whether the text being streamed spells out a call and is hidden."""
    _pending: dict[str, schema.ToolCallStatus] = field(
        default_factory=dict[str, schema.ToolCallStatus]
    )
    """The status of calls and questions that have not ended, by ID."""
    _forms: set[str] = field(default_factory=set[str])
    """IDs of questions asked by MCP servers."""
    _questions: list[tuple[Question, str]] = field(default_factory=list[tuple[Question, str]])
    """Questions of this turn other than approvals, with their IDs."""
    _plan: ToolGraph | None = None
    _budget_plan: PlanChanged | None = None

    def convert(self, event: Event, *, past: bool = False) -> Sequence[Update]:
        """Convert an event to updates, often none; a `past` event also yields the user's question."""
        updates: Sequence[Update] = []
        match event:
            case TurnStarted():
                ended = self.settled()
                self._turn, self._step_texts, self._plan = event.turn, [], None
                self._questions.clear()
                updates = (
                    [*ended, self._chunk(schema.UserMessageChunk, event.question)]
                    if past
                    else ended
                )
            case TurnFinished():
                updates = self.settled()
            case StepStarted():
                self._open = ("", "")
                self._step_texts.clear()
            case TextArrived():
                updates = self._streamed(event)
            case Rationale() | Reasoned() | Answer():
                updates = self._whole(event)
            case GraphPlanned():
                self._plan = ToolGraph(event)
                updates = [_plan_update(self._plan)]
            case NodeChanged() if self._plan is not None:
                self._plan = self._plan.with_change(event)
                updates = [_plan_update(self._plan)]
            case CallStarted(name=name) | CallFinished(name=name) if name == FINISH:
                pass
            case ToolRegistered(by="upfront") | CallJudged():
                pass
            case ApprovalGiven() | CostChosen() | LimitChosen() | TrustGiven() | QuoteChosen():
                updates = self._decision_updates(event)
            case CallStarted() | CallFinished() | CommandRan():
                updates = self._call_updates(event)
            case ApprovalWanted() | CostWanted() | LimitHit() | TrustWanted():
                updates = self._call_updates(event)
            case Quote() if event.reason:
                updates = self._call_updates(event)
            case ErrorHappened():
                updates = [self.say(event.render().words)]
            case PlanChanged():
                previous, self._budget_plan = self._budget_plan, event
                updates = self._notes(event.render(previous))
            case _:
                updates = self._notes(event.render())
        return updates

    def settled(self) -> Sequence[Update]:
        """Return updates that mark the remaining calls and questions of an ended turn as failed."""
        self._open = ("", "")
        updates: list[Update] = [_progress(call_id, "failed") for call_id in self._pending]
        self._pending.clear()
        plan, self._plan = self._plan, None
        if plan is not None and not plan.is_settled:
            updates.append(_plan_update(plan.closed()))
        return updates

    def say(self, text: str) -> Update:
        """Return a message of the shell."""
        return self._chunk(schema.AgentMessageChunk, text)

    def note(self, text: str) -> Update:
        """Return a note for the user, apart from the answer."""
        return self._chunk(schema.AgentThoughtChunk, f"{visible_line(text)}\n")

    def _notes(self, line: Line | None) -> Sequence[Update]:
        return [] if line is None or line.kind == "progress" else [self.note(line.words)]

    def question(self, event: Question) -> schema.ToolCallUpdate:
        """Return the tool call update that a permission request refers to."""
        return schema.ToolCallUpdate(
            tool_call_id=self._id(event), status="pending", **self._card(event)
        )

    # -- texts

    def _chunk(self, kind: type[Chunk], text: str, *, is_new: bool = True) -> Chunk:
        """Return a chunk: a new text, or, if not `is_new`, the next piece of the current one."""
        if is_new:
            self._open = ("", "")
            self._messages += 1
        update: Any = _CHUNKS[kind]
        content = schema.TextContentBlock(type="text", text=visible(text))
        return kind(
            session_update=update, content=content, message_id=f"m{self._turn}.{self._messages}"
        )

    def _streamed(self, event: TextArrived) -> Sequence[Update]:
        """Convert a piece of a reply; hides spelled-out calls and the texts that complete a plan's calls."""
        if event.node:
            return []
        key, text = (event.channel, event.role), event.text
        if self._open != key:
            # a single model speaks to the user; reasoning and the texts of roles are thoughts
            thought = event.channel == "reasoning" or (
                event.channel == "thought" and event.role in ROLES
            )
            kind = schema.AgentThoughtChunk if thought else schema.AgentMessageChunk
            if all(other is not kind for other, _ in self._step_texts):
                text = text.lstrip()  # models like to begin with a space
            if not text:
                return []
            self._open = key
            self._messages += 1
            self._step_texts.append((kind, ""))
            self._withheld = event.channel != "reasoning" and text.startswith(CALL_BEGINS)
        if self._withheld:
            return []
        kind, streamed = self._step_texts[-1]
        self._step_texts[-1] = (kind, streamed + text)
        return [self._chunk(kind, text, is_new=False)]

    def _whole(self, event: Rationale | Reasoned | Answer) -> Sequence[Update]:
        """Convert a complete text, unless it was streamed before."""
        text = event.text.strip()
        if isinstance(event, Answer):
            kind = schema.AgentMessageChunk
            streamed = [other for kind_, other in self._step_texts if kind_ is kind]
            candidates = (*streamed, "".join(streamed))  # a thought may have interrupted the answer
            is_streamed = text.split() in [candidate.split() for candidate in candidates]
        else:
            kind = schema.AgentThoughtChunk
            is_streamed = any(other.strip().startswith(text) for _, other in self._step_texts)
        if not text or is_streamed:
            return []
        self._step_texts.append((kind, text))
        return [self._chunk(kind, text)]

    # -- calls and questions

    def _id(self, event: Event) -> str:
        """Return the ID of a call or of a question."""
        if isinstance(event, ApprovalWanted | ApprovalGiven) and event.agent:
            return f"{self._turn}.{event.agent}.{event.id}"
        if isinstance(event, ApprovalWanted | ApprovalGiven | CallStarted | CallFinished):
            return f"{self._turn}.{event.id}"
        question_id = next((id_ for question, id_ in self._questions if question is event), "")
        if not question_id and isinstance(event, LimitHit | CostWanted | TrustWanted | Quote):
            question_id = f"{self._turn}.asked{len(self._questions) + 1}"
            self._questions.append((event, question_id))
        return question_id

    def _call_updates(self, event: Event) -> Sequence[Update]:
        """Convert an event of a call, or a question."""
        match event:
            case CallStarted():
                return [self._opened(event, "in_progress")]
            case LimitHit() | CostWanted() | TrustWanted() | Quote():
                return [self._opened(event, "pending")]
            case ApprovalWanted() if (id_ := self._id(event)) not in self._pending:
                self._forms.add(id_)
                return [self._opened(event, "pending")]
            case ApprovalWanted():
                return [self._with_status(event, "pending", **self._card(event))]
            case CallFinished():
                content = [*self._diffs(event.changes), _text(fenced(event.observation))]
                status = "completed" if event.ok else "failed"
                ended = self._with_status(event, status, content=content)
                self._pending.pop(self._id(event), None)
                return [ended]
            case CommandRan():
                self._messages += 1
                ran = schema.ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=f"{self._turn}.ran{self._messages}",
                    title=visible_line(event.command, _TITLE_CHARACTERS),
                    kind="execute",
                    status="completed" if event.ok else "failed",
                    content=[_text(fenced(event.output))],
                )
                return [ran]
            case _:
                return []

    def _decision_updates(
        self, event: ApprovalGiven | CostChosen | LimitChosen | TrustGiven | QuoteChosen
    ) -> Sequence[Update]:
        """Convert the decision on a question: an approved call continues; a refused one ends with CallFinished."""
        if not isinstance(event, ApprovalGiven):
            if not (unanswered := [id_ for _, id_ in self._questions if id_ in self._pending]):
                return self._notes(event.render()) if isinstance(event, QuoteChosen) else []
            del self._pending[unanswered[-1]]
            line = event.render()
            content = [] if line is None else [_text(line.words)]
            return [_progress(unanswered[-1], "completed", content=content)]
        id_, is_denied = self._id(event), event.decision == "no"
        if id_ in self._forms:
            self._forms.discard(id_)
            self._pending.pop(id_, None)
            return [_progress(id_, "failed" if is_denied else "completed")]
        if is_denied or self._pending.get(id_) != "pending":
            return []
        changed = {} if event.arguments is None else {"raw_input": dict(event.arguments)}
        return [self._with_status(event, "in_progress", **changed)]

    def _opened(
        self, event: CallStarted | Question, status: schema.ToolCallStatus
    ) -> schema.ToolCallStart:
        id_ = self._id(event)
        self._pending[id_] = status
        card = self._card(event)
        return schema.ToolCallStart(
            session_update="tool_call", tool_call_id=id_, status=status, **card
        )

    def _with_status(
        self, event: Event, status: schema.ToolCallStatus, **more: Any
    ) -> schema.ToolCallProgress:
        id_ = self._id(event)
        self._pending[id_] = status
        return _progress(id_, status, **more)

    def _card(self, event: CallStarted | Question) -> dict[str, Any]:
        """Return the display fields of a call or a question."""
        line = event.render()
        title = visible_line(line.text, _TITLE_CHARACTERS)
        if isinstance(event, TrustWanted):
            return {"title": title, "kind": "read", "content": [_text(fenced(event.text))]}
        if isinstance(event, LimitHit | CostWanted | Quote):
            return {"title": title, "kind": "other", "content": [_text(visible(line.detail))]}
        tool = self.catalog.tool(event.name) if event.name in self.catalog else None
        path_names = (
            ()
            if tool is None
            else (name for name, subject in subjects_of(tool).items() if subject is Subject.PATH)
        )
        paths = (
            event.arguments[name]
            for name in path_names
            if isinstance(event.arguments.get(name), str)
        )
        card: dict[str, Any] = {
            "title": visible_line(Call(event.name, event.arguments).signature(), _TITLE_CHARACTERS),
            "kind": self._kind(event.name),
            "locations": [schema.ToolCallLocation(path=self._path(path)) for path in paths],
            "raw_input": dict(event.arguments),
        }
        if isinstance(event, ApprovalWanted):
            fault = f"These arguments cannot be used: {event.fault}" if event.fault else ""
            rationale = (
                visible(event.rationale) if event.of_server else visible_line(event.rationale)
            )
            paragraphs = (visible_line(fault), rationale, visible_line(line.detail))
            card["content"] = [
                _text("\n\n".join(filter(None, paragraphs))),
                *self._diffs(event.changes),
            ]
        return card

    def _kind(self, name: str) -> schema.ToolKind:
        """Return the kind of a tool; a server's tool is `read` or `other`."""
        if name not in self.catalog:
            return "other"
        tool = self.catalog.tool(name)
        if tool.schema.server:
            return "read" if not tool.effects - {"read"} else "other"
        if name in _SEARCHES:
            return "search"
        for effect, kind in _KINDS.items():
            if effect in tool.effects:
                return kind
        return "other"

    def _path(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, path))  # noqa: PTH118 - a path of any length, as it was written

    def _diffs(self, changes: str) -> list[Content]:
        """Return a file's changes as one diff per hunk, or as text if the diff was cut."""
        lines = changes.split("\n")
        if len(lines) < 3:
            return []
        path, created = self._path(lines[1].removeprefix("+++ b/")), lines[0] == "--- /dev/null"
        hunks = hunks_of(lines[2:])
        if hunks is None:
            return [_text(fenced(changes, "diff"))]
        return [
            schema.FileEditToolCallContent(
                type="diff", path=path, old_text=None if created else old, new_text=new
            )
            for old, new in hunks
        ]


def _plan_update(plan: ToolGraph) -> schema.AgentPlanUpdate:
    """Return the nodes of a tool graph as plan entries; failed nodes are labelled."""
    entries: list[schema.PlanEntry] = []
    for node in plan.plan.nodes:
        state = plan.state(node.label)
        change = plan.changes.get(node.label)
        line = change and change.render()
        text = line.words if line else visible_line(node.label)
        if state in ("stopped", "skipped") and state not in text:
            text = f"{text} {state}"
        priority: Literal["high", "medium"] = (
            "high" if node.label in plan.plan.critical else "medium"
        )
        entries.append(
            schema.PlanEntry(content=text, priority=priority, status=_NODES.get(state, "completed"))
        )
    return schema.AgentPlanUpdate(session_update="plan", entries=entries)


def _progress(id_: str, status: schema.ToolCallStatus, **more: Any) -> schema.ToolCallProgress:
    return schema.ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id_, status=status, **more
    )


def _text(text: str) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(
        type="content", content=schema.TextContentBlock(type="text", text=text)
    )
