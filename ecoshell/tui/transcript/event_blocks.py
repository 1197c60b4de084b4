"""Blocks for events, as pure functions that can be tested without a screen; their words are those of `render`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    ErrorHappened,
    Event,
    Notice,
    PlanChanged,
    Rationale,
    Reasoned,
    Status,
    SubagentFinished,
    SubagentStarted,
    TodoChanged,
    TrustWanted,
    TurnFinished,
)
from ecoshell.events.figures import length_text
from ecoshell.events.lines import Kind, Line
from ecoshell.events.tools import argument_text
from ecoshell.events.turn import attachment_line
from ecoshell.messages import Attachment, visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing, headline
from ecoshell.tui.transcript.blocks import (
    COLUMN_GAP,
    Block,
    Body,
    Piece,
    Row,
    Tone,
    call_row,
    preview,
    row,
    rows_of,
)

QUESTION_LINES = 12
OBSERVATION_LINES = 4
CHANGED_LINES = 24
_READERS = frozenset({"read_file", "list_files", "search_text"})
"""Tools whose successful results are shown only when opened."""
_RUNNERS = frozenset({"run_command", "run_python", "run_program", "command_output"})
"""Tools whose results end with the verdict, such as that of tests."""
COMMAND_LINES = 12
STOPPED, WAITS = "stopped", "waits for your approval"
"""States of a call without an ending, and of one that waits for approval."""
ARGUMENT_LINES = 6
_WIDEST_TASK = 200
_MAX_LEAD = 44
"""Width of the columns after which the last one is wrapped on its own."""
_TONES: Mapping[Kind, Tone] = {
    "info": "muted", "good": "good", "warning": "warning", "error": "error", "note": "warning", "thought": "thought",
    "call": "tool", "result": "muted", "failure": "error", "question": "warning", "answer": "good", "progress": "muted",
}  # fmt: skip
_ANSWERS: Mapping[Status, tuple[str, Tone]] = {
    "answered": ("√", "good"),
    "limit": ("≈", "warning"),
    "gave_up": ("Ø", "warning"),
    "error": ("≈", "error"),
    "interrupted": ("≈", "warning"),
}
"""The signs of complete and partial answers, and of a turn without one."""
_ELSEWHERE = (ApprovalWanted, TodoChanged, TrustWanted)
"""Events that have a widget outside the transcript."""


def block_of(event: Event) -> Block | None:
    """The block of a self-contained event; None for events without words, and those shown elsewhere."""
    line = None if isinstance(event, _ELSEWHERE) else event.render()
    if line is None:
        return None
    if isinstance(event, CommandRan):
        tone: Tone = "tool" if event.ok else "error"
        end = Piece(line.detail, "muted" if event.ok else "error")
        head = (call_row((Piece(visible_line(line.text), "question"),), end),)
        return Block(line.icon, tone, head, bodies=tuple(_output(event)), gap=True, turn=True)
    block = line_block(line, name=getattr(event, "name", ""))
    if isinstance(event, Compacted):
        summary = Body(visible(event.summary.strip()), 2, kind="markdown")
        return replace(block, bodies=(summary,))
    return block


def line_block(line: Line, *, name: str = "") -> Block:
    """A line in its tone, its detail muted unless it warns; a tool's `name` at its start stands out."""
    if line.kind == "note":
        return Block(line.icon, "warning", rows_of(line.text))
    tone, name, text = _TONES[line.kind], visible_line(name), visible_line(line.text)
    pieces = [Piece(text, tone), Piece(line.tail, "text" if tone == "warning" else "muted")]
    if name and text.startswith(name):
        pieces[:1] = [Piece(name, "tool"), Piece(text.removeprefix(name), tone)]
    return Block(line.icon, tone, (row(*(piece for piece in pieces if piece.text)),))


def question(text: str, *, waiting: str = "", attachments: Sequence[Attachment] = ()) -> Block:
    """A question with its attachments; long pastes are folded. `waiting` is a note below it."""
    bodies = [Body(visible(text), QUESTION_LINES, tone="question", indent="")]
    for attachment in attachments:
        line = attachment_line(attachment)
        name = Piece(f"{line.icon} {visible_line(line.text)}", "tool")
        head = row(name, Piece(line.tail, "muted"))
        content = "" if attachment.image else visible(attachment.text).rstrip("\n")
        bodies.append(Body(content, 0, tone="muted", head=head))
    if waiting:
        bodies.append(Body("", 0, head=row(Piece(waiting, "muted"))))
    return Block("›", "question", bodies=tuple(bodies), gap=True, turn=True)


def rationale(event: Rationale) -> Block:
    """A finished thought and its role."""
    first, *more = rows_of(event.text.strip(), "thought")
    return Block("◊", "thought", (row(*_by(event.role), *first.pieces), *more))


def reasoning(event: Reasoned, *, arriving: bool = False) -> Block:
    """The reasoning before a reply, folded."""
    line = event.render()
    summary = f"thinking … {length_text(event.text)}" if arriving else line.text
    head = row(*_by(event.role), Piece(summary, "muted"))
    body = Body(visible(event.text.strip()), 0, tone="muted", head=head)
    return Block(line.icon, "muted", bodies=(body,))


def _by(role: str) -> tuple[Piece, ...]:
    """The role, if several share the turn."""
    return (Piece(f"{role}  ", "muted"),) if role in ROLES else ()


def plan(event: PlanChanged, previous: PlanChanged | None) -> Block | None:
    """The first plan of a turn, or the tools a later one newly forbids; None if it forbids none."""
    line = event.render(previous)
    return line and line_block(line)


def graph(progress: ToolGraph, name: str) -> Block:
    """A tool graph with its estimate, the states of its nodes and, in the end, its outcome."""
    from ecoshell.agent.scoring import outcome  # few sessions have tool graphs

    line = headline(progress)
    head = row(Piece(line.text, "thought"), Piece(f" · {line.detail}", "muted"))
    end = row(Piece(outcome(progress), "muted"), lead="└ ")
    bodies = (Body("", 0, head=end),) if progress.is_settled else ()
    drawing = Drawing(progress)
    return Block(line.icon, "thought", (head,), drawing=drawing, bodies=bodies, name=name)


def verdict(judged: CallJudged | None, marked: CallMarked | None) -> tuple[Piece, ...]:
    """The verdict on a result, for the end of its line; the user's mark overrides the judge."""
    is_marked = marked is not None and marked.helpful is not None
    event = marked if is_marked else judged
    line = event and event.render()
    if line is None:
        return ()
    tone = _TONES[line.kind]
    if is_marked:
        word, _, by = line.text.partition(", ")
        return (Piece(f"{line.icon} {word}", tone), Piece(f", {by}", "muted"))
    return (Piece(line.icon if line.kind == "good" else f"{line.icon} {line.text}", tone),)


def running_call(started: CallStarted, state: str = "", *, progress: str = "running") -> Block:
    """A running call with its progress, or in a state that needs attention."""
    ending = Piece(state, "warning") if state else Piece(f"{visible_line(progress)} …", "muted")
    tone: Tone = "warning" if state == STOPPED else "tool"
    return Block("►", tone, (call_row(_signature(started), ending),))


def call(
    started: CallStarted | None, finished: CallFinished, denied: ApprovalGiven | None = None
) -> Block:
    """A finished call with time, price, observation and changes; or the denial and who decided it."""
    head = _signature(started) if started else (Piece(visible_line(finished.name), "tool"),)
    if denied is not None and finished.refused:
        line = denied.render()
        rows = (row(Piece(visible_line(line.detail))),) if line.detail else ()
        bodies = tuple(_output(finished)) if denied.by == "rule" else ()
        ending = call_row(head, Piece(line.text, "warning"))
        return Block("►", "warning", (ending, *rows), bodies=bodies)
    line = finished.render()
    tone: Tone = "warning" if finished.refused else _TONES[line.kind]
    bodies = tuple(_output(finished))
    is_folded = any(not body.lines for body in bodies)
    ending = replace(call_row(head, Piece(visible_line(line.text), tone)), folds=is_folded)
    sign_tone: Tone = "tool" if finished.ok else tone
    return Block("►", sign_tone, (ending,), bodies=bodies)


def subagent(
    started: SubagentStarted,
    call: CallStarted | None,
    *,
    progress: str = "",
    ended: SubagentFinished | None = None,
    stopped: bool = False,
) -> Block:
    """A subagent in one line: what it does, its state, cost and share; enter or a click opens its transcript."""
    instructions = str(call.arguments.get("instructions", "")) if call else ""
    head = (
        Piece(visible_line(started.name), "tool"),
        Piece(f"  {visible_line(instructions, _WIDEST_TASK)}"),
    )
    tone: Tone = "tool"
    if ended is not None:
        if ended.status != "answered":
            tone = "error" if ended.status == "error" else "warning"
        ending = Piece(visible_line(ended.outcome), "muted" if tone == "tool" else tone)
    elif stopped:
        tone, ending = "warning", Piece(STOPPED, "warning")
    else:
        state = visible_line(progress) or started.allowance or "running"
        ending = Piece(f"{state} …", "muted")
    line = Row(head, tail=(ending,), crops=True, folds=True)
    return Block("»", tone, (line,), session=(started.session, started.name))


def approval(name: str, event: ApprovalGiven) -> Block:
    """A decision on a call and who made it, with edited arguments, if any."""
    line = event.render()
    tone = _TONES[line.kind]
    rows = [row(Piece(visible_line(name), "tool"), Piece(f"  {line.text}", tone))]
    if event.arguments is not None:
        rows.append(row(Piece("with arguments edited by you:", "muted")))
    for key, value in (event.arguments or {}).items():
        text, note = preview(argument_text(value), lines=ARGUMENT_LINES, characters=600)
        first, *more = visible(text).split("\n")
        rows.append(row(Piece(f"{visible_line(key)} = ", "muted"), Piece(first)))
        rows.extend(row(Piece(line), lead="    ") for line in more)
        if note:
            rows.append(row(Piece(note, "muted"), lead="    "))
    return Block(line.icon, tone, tuple(rows))


def notice(text: str) -> Block:
    """A warning."""
    return line_block(Notice(text).render())


def command_output(text: str) -> Block:
    """The output of a command; long table lines are wrapped below their last column."""
    rows: list[Row] = []
    for line in visible(text).split("\n"):
        at = max(
            (gap.end() for gap in COLUMN_GAP.finditer(line) if gap.end() <= _MAX_LEAD), default=0
        )
        rows.append(row(Piece(line[at:]), lead=line[:at]))
    return Block("", "text", tuple(rows), gap=True)


def answer(event: Answer, status: Status = "answered") -> Block:
    """The answer as Markdown; its sign shows how the turn ended."""
    head = (row(Piece(event.render().text, "warning")),) if event.partial else ()
    sign, tone = _ANSWERS["limit" if event.partial and status == "answered" else status]
    return Block(sign, tone, head, markdown=visible(event.text.strip()), gap=True)


def error(event: ErrorHappened) -> Block:
    """What happened, what was kept, and what to do next."""
    line = event.render()
    more = rows_of(line.detail) if line.detail else ()
    return Block(line.icon, "error", (*rows_of(line.text, "error"), *more))


def footer(event: TurnFinished, by: str = "") -> Block:
    """The turn's cost, steps, time and saved tokens, and its ending unless it is an answer."""
    line = event.render()
    sums = " · ".join(filter(None, (line.text, by)))
    if event.status == "answered":
        return Block("", "muted", (row(Piece(sums, "muted")),))
    tone: Tone = "error" if event.status == "error" else "warning"
    ending, gap, sums = sums.partition(" · ")
    return Block(line.icon, tone, (row(Piece(f"{ending}{gap}", tone), Piece(sums, "muted")),))


def _signature(started: CallStarted) -> tuple[Piece, ...]:
    text = started.render().text
    name, arguments = text[: len(started.name)], text[len(started.name) :]
    return *_by(started.role), Piece(visible_line(name), "tool"), Piece(visible_line(arguments))


def _output(event: CallFinished | CommandRan) -> Iterator[Body]:
    """The output of a call or command, and its file changes."""
    is_call = isinstance(event, CallFinished)
    name, lines = (event.name, OBSERVATION_LINES) if is_call else ("", COMMAND_LINES)
    if event.ok and name in _READERS:
        lines = 0
    text = (event.observation if is_call else event.output).strip("\n")
    if text:
        yield Body(visible(text), lines, shows_end=name in _RUNNERS, corner="└ ")
    if is_call and event.changes.strip():
        lines = event.changes.split("\n")
        added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        counts = (Piece(f"+{added:,}", "added"), Piece(" "), Piece(f"−{removed:,}", "removed"))
        head = row(*counts, lead="└ ")
        yield Body(visible(event.changes.strip("\n")), CHANGED_LINES, kind="diff", head=head)
