"""Exports of a session's events as Markdown and JSON."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    CallFinished,
    CallJudged,
    CallStarted,
    CommandRan,
    Compacted,
    Event,
    GraphPlanned,
    PlanChanged,
    Rationale,
    TodoChanged,
    TurnStarted,
    to_json,
)
from ecoshell.events.lines import Line
from ecoshell.events.turn import attachment_line
from ecoshell.events.work import todo_lines
from ecoshell.messages import Call, visible_line
from ecoshell.paths import remedy
from ecoshell.sessions.markdown import code, fenced, literal, prose, quoted
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.store import SessionInfo
from ecoshell.sessions.tool_graphs import ToolGraph, tool_graphs

TimedEvent = tuple[float, Event]
"""The time in seconds since 1970, and the event."""

_HEADING_CHARACTERS = 80


def as_json(events: Iterable[TimedEvent], session: SessionInfo | None = None) -> str:
    """Return a JSON object with `session`, if known, and `events`, each with its time as `at`."""
    document: dict[str, object] = {}
    if session is not None:
        document["session"] = {
            "id": session.id,
            "title": session.title,
            "created": iso_time(session.created),
            "updated": iso_time(session.updated),
            "workspace": session.workspace,
            "model": session.model,
            **({"parent": session.parent} if session.parent else {}),
        }
    document["events"] = [{"at": iso_time(at), **to_json(event)} for at, event in events]
    return json.dumps(document, indent=2) + "\n"


def as_markdown(
    events: Iterable[TimedEvent], session: SessionInfo | None = None, *, running: bool = False
) -> str:
    """Return the session as Markdown, with tool graphs in their final state.

    `running` means that the last turn has not ended.
    """
    events = _grouped_by_call(events)
    graphs = iter(tool_graphs((event for _, event in events), running=running))
    title = literal(session.title) if session and session.title else "A session with ecoshell"
    blocks = [f"# {title}"]
    if session is not None:
        parent = f", for a subagent of {code(session.parent)}" if session.parent else ""
        start = f"started {iso_time(session.created)} in {code(session.workspace)}"
        blocks.append(f"Session {code(session.id)}{parent}, {start}")
    plan: PlanChanged | None = None
    for at, event in events:
        if isinstance(event, TurnStarted):
            blocks += _turn_heading(at, event)
        elif isinstance(event, GraphPlanned):
            blocks += _graph_blocks(next(graphs))
        elif isinstance(event, PlanChanged):
            blocks += _plan_blocks(plan, event)
            plan = event
        else:
            blocks += _blocks(event)
    return "\n\n".join(blocks) + "\n"


def _graph_blocks(graph: ToolGraph) -> tuple[str, ...]:
    """Return the line of a tool graph, the graph as the model wrote it, and its chart."""
    chart = fenced(flowchart(graph), "mermaid")
    return _paragraph(graph.plan.render()), code(graph.plan.text), chart


def _plan_blocks(previous: PlanChanged | None, plan: PlanChanged) -> tuple[str, ...]:
    """Return the first plan of a turn with the planned tools, or what a later plan newly forbids."""
    line = plan.render(previous)
    if line is None:
        return ()
    planned = [row for row in plan.rows if row.state == "planned" and plan.number == 1]
    tools = ", ".join(f"{code(row.tool)} up to {row.planned}×" for row in planned)
    return (_paragraph(line), tools) if tools else (_paragraph(line),)


def _grouped_by_call(events: Iterable[TimedEvent]) -> list[TimedEvent]:
    """Return the events in order, but with the events of a call together: calls run in parallel."""
    groups: list[list[TimedEvent]] = []
    calls: dict[str, list[TimedEvent]] = {}
    for at, event in events:
        match event:
            case TurnStarted():  # Call IDs are unique within a turn.
                calls.clear()
            case CallStarted():
                calls[event.id] = [(at, event)]
                groups.append(calls[event.id])
                continue
            case ApprovalGiven(agent="") | CallFinished() | CallJudged() if event.id in calls:
                calls[event.id].append((at, event))
                continue
            case _:
                pass
        groups.append([(at, event)])
    return [timed for group in groups for timed in group]


def iso_time(at: float) -> str:
    """Return seconds since 1970 as a date and time in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # A damaged file.
        return str(at)


def write_new(
    file: Path, text: str, *, kept: str = "The session is kept.", mode: int = 0o666
) -> None:
    """Create a file completely or not at all; `mode` is its permissions before the umask.

    Raises UsageError if it exists, and StoreError if it cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(descriptor)  # Some disks report only now that they are full.
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{file} exists already.", fix="Choose another file name.") from None
    except ValueError:  # A NUL character.
        message = f"{visible_line(str(file))} is not a valid file name."
        raise UsageError(message, fix="Choose another file name.") from None
    except OSError as error:
        fix = remedy(error, "Choose another file name.")
        message = f"{file} cannot be written: {error.strerror}."
        raise StoreError(message, kept=kept, fix=fix) from error


def _turn_heading(at: float, event: TurnStarted) -> tuple[str, ...]:
    heading = visible_line(event.question, _HEADING_CHARACTERS)
    blocks = [f"## {event.turn}. {literal(heading)}"]
    if heading != event.question.strip():
        blocks.append(quoted(event.question))
    names = map(code, (event.model, event.mode, event.strategy))
    blocks.append(" · ".join((iso_time(at), *names)))
    for attachment in event.attachments:
        blocks.append(_paragraph(attachment_line(attachment)))
        if not attachment.image:
            blocks.append(fenced(attachment.text))
    return tuple(blocks)


def _blocks(event: Event) -> tuple[str, ...]:
    """Return the line of an event, and below it the texts to which it refers."""
    match event:
        case Rationale():
            return (f"**Thought** ({literal(event.role)})", quoted(event.text))
        case Answer():
            return (f"**{_capitalized(event.render().text)}**", prose(event.text))
        case CallStarted():
            return ("**Call**", fenced(Call(event.name, event.arguments).signature()))
        case CallFinished():
            changes = (fenced(event.changes, "diff"),) if event.changes else ()
            head = f"**Result**: {literal(event.render().text)}"
            return (head, fenced(event.observation), *changes)
        case Compacted():
            below = (quoted(event.summary),)
        case CommandRan():
            below = (fenced(event.output),)
        case CallJudged() if event.note:
            below = (quoted(event.note),)
        case TodoChanged():
            below = (fenced("\n".join(todo_lines(event.items))),)
        case _:
            below = ()
    line = event.render()
    return below if line is None or line.kind == "progress" else (_paragraph(line), *below)


def _paragraph(line: Line) -> str:
    """Return a line as a paragraph, with warnings and errors in bold."""
    text = literal(f"{line.label} {line.text}")
    if line.kind in ("warning", "error"):
        text = f"**{text}**"
    icon = "\\+" if line.icon == "+" else line.icon  # not a list
    return f"{icon} {text} {literal(line.tail)}".rstrip()


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
