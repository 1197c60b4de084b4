"""What an editor is told of the events of a session, live and when the session is loaded (Agent Client Protocol v1)."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from acp import schema

from ecoshell.agent.commands import dollars
from ecoshell.catalog import Catalog
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    CommandRan,
    Compacted,
    CostChosen,
    CostWanted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitChosen,
    LimitHit,
    ModeChosen,
    NodeChanged,
    NodeState,
    Notice,
    Rationale,
    Reasoned,
    ResultsTrimmed,
    StepStarted,
    TextArrived,
    ToolRegistered,
    TrustGiven,
    TrustWanted,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.events.describe import CALL_BEGINS, describe
from ecoshell.messages import FINISH, Call, Effect, visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.markdown import fenced
from ecoshell.sessions.plans import Branching
from ecoshell.tools import Subject, subjects_of

Chunk = schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk
Update = Chunk | schema.ToolCallStart | schema.ToolCallProgress | schema.AgentPlanUpdate
Content = schema.ContentToolCallContent | schema.FileEditToolCallContent
Question = ApprovalWanted | LimitHit | CostWanted | TrustWanted
"""What the core wants decided."""

_CHUNKS: Mapping[type[Chunk], str] = {
    schema.UserMessageChunk: "user_message_chunk",
    schema.AgentMessageChunk: "agent_message_chunk",
    schema.AgentThoughtChunk: "agent_thought_chunk",
}
_TITLE = 160
"""Characters of a title."""
_KINDS: Mapping[Effect, schema.ToolKind] = {"execute": "execute", "write": "edit", "network": "fetch", "read": "read"}
"""What a built-in tool is called for, by the first of these effects that it has."""
_SEARCHES = frozenset({"search_text", "list_files"})
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NODES: Mapping[NodeState, schema.PlanEntryStatus] = {"waiting": "pending", "running": "in_progress"}
"""How a node stands, for an editor; every other one has ended."""


@dataclass(slots=True, eq=False)
class Updates:
    """Turns the events of one session, in their order, into updates; text that was streamed is not told again whole."""

    catalog: Catalog
    root: str
    """The folder that files of tools are below."""
    _turn: int = 0
    _messages: int = 0
    """Texts so far; each has an id of its own."""
    _open: tuple[str, str] = ("", "")
    """The channel and the role of the text that is arriving."""
    _said: list[tuple[type[Chunk], str]] = field(default_factory=list[tuple[type[Chunk], str]])
    """What was said in this step, a text each, and as what."""
    _withheld: bool = False
    """Whether what arrives spells a call."""
    _pending: dict[str, schema.ToolCallStatus] = field(default_factory=dict[str, schema.ToolCallStatus])
    """Calls and questions that have not ended, and how each stands."""
    _forms: set[str] = field(default_factory=set[str])
    """Those of them that a server asks beside a call."""
    _asked: list[tuple[Question, str]] = field(default_factory=list[tuple[Question, str]])
    """The questions of this turn that are no calls, with their ids."""
    _plan: Branching | None = None

    def of(self, event: Event, *, past: bool = False) -> Sequence[Update]:
        """What to tell of an event, often nothing; of a `past` one also what the person said."""
        updates: Sequence[Update] = []
        match event:
            case TurnStarted():
                ended = self.settled()
                self._turn, self._said, self._plan = event.turn, [], None
                self._asked.clear()
                updates = [*ended, self._chunk(schema.UserMessageChunk, event.question)] if past else ended
            case TurnFinished():
                updates = self.settled()
            case StepStarted():
                self._open = ("", "")
                self._said.clear()
            case TextArrived():
                updates = self._arrived(event)
            case Rationale() | Reasoned() | Answer():
                updates = self._whole(event)
            case (
                BranchLeft()
                | BudgetSettled()
                | Compacted()
                | ModeChosen()
                | Notice()
                | ResultsTrimmed()
                | ToolRegistered()
                | TurnUndone()
            ):
                text = event.text if isinstance(event, Notice) else describe(event)
                updates = [self.note(text)] if text else []
            case ErrorHappened():
                updates = [self.say(" ".join(filter(None, (event.message, event.kept, event.fix))))]
            case GraphPlanned():
                self._plan = Branching(event)
                updates = [_plan_update(self._plan)]
            case NodeChanged() if self._plan is not None:
                self._plan = self._plan.heard(event)
                updates = [_plan_update(self._plan)]
            case CallStarted(name=name) | CallFinished(name=name) if name == FINISH:
                pass
            case _:
                updates = self._called(event)
        return updates

    def settled(self) -> Sequence[Update]:
        """What to tell once nothing of a turn can go on any more: calls and questions that never ended have failed."""
        self._open = ("", "")
        left = [_progress(one, "failed") for one in self._pending]
        self._pending.clear()
        plan, self._plan = self._plan, None
        if plan is not None and not plan.settled:
            return [*left, _plan_update(plan.ended())]
        return left

    def say(self, text: str) -> Update:
        """A message of the shell's own."""
        return self._chunk(schema.AgentMessageChunk, text)

    def note(self, text: str) -> Update:
        """Something beside the answer that a person may want to know."""
        return self._chunk(schema.AgentThoughtChunk, f"{visible_line(text)}\n")

    def question(self, event: Question) -> schema.ToolCallUpdate:
        """What the person decides on, as it is asked about."""
        return schema.ToolCallUpdate(tool_call_id=self._id(event), status="pending", **self._card(event))

    # -- texts

    def _chunk(self, kind: type[Chunk], text: str, *, whole: bool = True) -> Chunk:
        """A text, or another piece of the one that arrives."""
        if whole:
            self._open = ("", "")
            self._messages += 1
        update: Any = _CHUNKS[kind]
        content = schema.TextContentBlock(type="text", text=visible(text))
        return kind(session_update=update, content=content, message_id=f"m{self._turn}.{self._messages}")

    def _arrived(self, event: TextArrived) -> Sequence[Update]:
        """A piece of a reply; nothing of a call that is spelled out, nor of what fills in the calls of a plan."""
        if event.node:
            return []
        key, text = (event.channel, event.role), event.text
        if self._open != key:
            # what one model says is said to the person, what it reasons and what roles think is not
            thought = event.channel == "reasoning" or (event.channel == "thought" and event.role in ROLES)
            kind = schema.AgentThoughtChunk if thought else schema.AgentMessageChunk
            if all(said is not kind for said, _ in self._said):
                text = text.lstrip()  # models like to begin with a space
            if not text:
                return []
            self._open = key
            self._messages += 1
            self._said.append((kind, ""))
            self._withheld = event.channel != "reasoning" and text.startswith(CALL_BEGINS)
        if self._withheld:
            return []
        kind, said = self._said[-1]
        self._said[-1] = (kind, said + text)
        return [self._chunk(kind, text, whole=False)]

    def _whole(self, event: Rationale | Reasoned | Answer) -> Sequence[Update]:
        """A text that is complete, unless it was told while it arrived."""
        text = event.text.strip()
        if isinstance(event, Answer):
            kind = schema.AgentMessageChunk
            said = [said for kind_, said in self._said if kind_ is kind]
            told = text.split() in [one.split() for one in (*said, "".join(said))]  # a thought may have come in between
        else:
            kind, told = schema.AgentThoughtChunk, any(said.strip().startswith(text) for _, said in self._said)
        if not text or told:
            return []
        self._said.append((kind, text))
        return [self._chunk(kind, text)]

    # -- calls and questions

    def _id(self, event: Event) -> str:
        """The id of a call, or of a question about something else."""
        if isinstance(event, ApprovalWanted | ApprovalGiven | CallStarted | CallFinished):
            return f"{self._turn}.{event.id}"
        known = next((id_ for asked, id_ in self._asked if asked is event), "")
        if not known and isinstance(event, LimitHit | CostWanted | TrustWanted):
            known = f"{self._turn}.asked{len(self._asked) + 1}"
            self._asked.append((event, known))
        return known

    def _called(self, event: Event) -> Sequence[Update]:
        """What to tell of a call, or of a question and what was chosen."""
        match event:
            case CallStarted() | LimitHit() | CostWanted() | TrustWanted():
                id_, status = self._id(event), "in_progress" if isinstance(event, CallStarted) else "pending"
                self._pending[id_] = status
                card = self._card(event)
                return [schema.ToolCallStart(session_update="tool_call", tool_call_id=id_, status=status, **card)]
            case ApprovalWanted() if (id_ := self._id(event)) not in self._pending:
                self._pending[id_] = "pending"
                self._forms.add(id_)
                card = self._card(event)
                return [schema.ToolCallStart(session_update="tool_call", tool_call_id=id_, status="pending", **card)]
            case ApprovalWanted():
                return [self._stands(event, "pending", **self._card(event))]
            case ApprovalGiven() if (id_ := self._id(event)) in self._forms:
                self._forms.discard(id_)
                self._pending.pop(id_, None)
                return [_progress(id_, "failed" if event.decision == "no" else "completed")]
            case ApprovalGiven():  # one that was asked about goes on; a refused one ends by itself
                if event.decision != "no" and self._pending.get(self._id(event)) == "pending":
                    changed = {} if event.arguments is None else {"raw_input": dict(event.arguments)}
                    return [self._stands(event, "in_progress", **changed)]
            case LimitChosen(choice=chosen) | CostChosen(choice=chosen) | TrustGiven(decision=chosen):
                if open_ := [id_ for _, id_ in self._asked if id_ in self._pending]:
                    del self._pending[open_[-1]]
                    return [_progress(open_[-1], "completed", content=[_text(f"Chosen: {chosen}.")])]
            case CallFinished():
                content = [*self._diffs(event.changes), _text(fenced(event.observation))]
                ended = self._stands(event, "completed" if event.ok else "failed", content=content)
                self._pending.pop(self._id(event), None)
                return [ended]
            case CommandRan():
                self._messages += 1
                ran = schema.ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=f"{self._turn}.ran{self._messages}",
                    title=visible_line(event.command, _TITLE),
                    kind="execute",
                    status="completed" if event.ok else "failed",
                    content=[_text(fenced(event.output))],
                )
                return [ran]
            case _:
                pass
        return []

    def _stands(self, event: Event, status: schema.ToolCallStatus, **more: Any) -> schema.ToolCallProgress:
        id_ = self._id(event)
        self._pending[id_] = status
        return _progress(id_, status, **more)

    def _card(self, event: CallStarted | Question) -> dict[str, Any]:
        """What a call or a question looks like."""
        match event:
            case LimitHit():
                return {"title": "A cap is reached", "kind": "other", "content": [_text(visible(event.message))]}
            case CostWanted():
                low, high = dollars(event.low_nano), dollars(event.high_nano)
                title = f"The next step with {event.model} costs from {low} to {high} at most"
                above = f"You are asked above {dollars(event.threshold_nano)}: `[budget] ask_above` in the settings."
                return {"title": visible_line(title, _TITLE), "kind": "other", "content": [_text(above)]}
            case TrustWanted():
                again = ", which has changed" if event.changed else ""
                title = visible_line(f"May the model follow {event.file}{again}?", _TITLE)
                return {"title": title, "kind": "read", "content": [_text(fenced(event.text))]}
            case CallStarted() | ApprovalWanted():
                pass
        tool = self.catalog.tool(event.name) if event.name in self.catalog else None
        paths = () if tool is None else (name for name, what in subjects_of(tool).items() if what is Subject.PATH)
        named = (event.arguments[name] for name in paths if isinstance(event.arguments.get(name), str))
        card: dict[str, Any] = {
            "title": visible_line(Call(event.name, event.arguments).signature(), _TITLE),
            "kind": self._kind(event.name),
            "locations": [schema.ToolCallLocation(path=self._path(one)) for one in named],
            "raw_input": dict(event.arguments),
        }
        if isinstance(event, ApprovalWanted):
            fault = f"These arguments cannot be used: {event.fault}" if event.fault else ""
            price = f"One use costs {dollars(event.price_nano)}." if event.price_nano else ""
            said = visible(event.rationale) if event.of_server else visible_line(event.rationale)
            told = (visible_line(fault), said, visible_line(event.reason), price)
            card["content"] = [_text("\n\n".join(filter(None, told))), *self._diffs(event.changes)]
        return card

    def _kind(self, name: str) -> schema.ToolKind:
        """What sort of thing a tool does; of a server's, only whether it reads."""
        if name not in self.catalog:
            return "other"
        tool = self.catalog.tool(name)
        if tool.document.server:
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
        """What changed in a file, a diff for each hunk; as text where it was cut."""
        lines = changes.split("\n")
        if len(lines) < 3:
            return []
        path, created = self._path(lines[1].removeprefix("+++ b/")), lines[0] == "--- /dev/null"
        hunks = _hunks(lines[2:])
        if hunks is None:
            return [_text(fenced(changes, "diff"))]
        return [
            schema.FileEditToolCallContent(type="diff", path=path, old_text=None if created else old, new_text=new)
            for old, new in hunks
        ]


def _plan_update(plan: Branching) -> schema.AgentPlanUpdate:
    """The nodes of a parallel plan as entries; one that failed says so."""
    entries: list[schema.PlanEntry] = []
    for node in plan.plan.nodes:
        state = plan.stands(node.label)
        change = plan.changes.get(node.label)
        told = (change and describe(change)) or visible_line(node.label)
        if state in ("stopped", "skipped") and state not in told:
            told = f"{told} {state}"
        priority: Literal["high", "medium"] = "high" if node.label in plan.plan.critical else "medium"
        entries.append(schema.PlanEntry(content=told, priority=priority, status=_NODES.get(state, "completed")))
    return schema.AgentPlanUpdate(session_update="plan", entries=entries)


def _hunks(lines: Sequence[str]) -> list[tuple[str, str]] | None:
    """The old and the new text of each hunk; None where the diff is not whole."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        head = _HUNK.match(lines[at])
        if head is None:
            return None
        old, new, left = list[str](), list[str](), [int(count or 1) for count in head.groups()]
        while any(left):
            at += 1
            sign = lines[at][:1] if at < len(lines) else ""
            if sign not in (" ", "-", "+"):
                return None
            for side, (text, other) in enumerate(((old, "+"), (new, "-"))):
                if sign != other:
                    text.append(lines[at][1:])
                    left[side] -= 1
        found.append(("\n".join(map(visible, old)), "\n".join(map(visible, new))))
        at += 1
    return found


def _progress(id_: str, status: schema.ToolCallStatus, **more: Any) -> schema.ToolCallProgress:
    return schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=id_, status=status, **more)


def _text(text: str) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(type="content", content=schema.TextContentBlock(type="text", text=text))
