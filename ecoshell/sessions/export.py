"""Exports of a session's events as Markdown and JSON."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ecoshell.budget import about, counted
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    Answer,
    ApprovalGiven,
    BackgroundEnded,
    BackgroundStarted,
    Bill,
    BranchLeft,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CapNear,
    CommandRan,
    Compacted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitChosen,
    LimitHit,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanScored,
    Quote,
    QuoteChosen,
    Rationale,
    ResultsTrimmed,
    SandboxBlocked,
    StepProposed,
    SubagentFinished,
    SubagentStarted,
    ToolRegistered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnStarted,
    TurnUndone,
    to_json,
)
from ecoshell.events.describe import (
    back_to,
    describe,
    price_range,
    refusal,
    registration_sizes,
    trimmed_text,
    turn_sums,
)
from ecoshell.messages import Call, visible_line
from ecoshell.paths import remedy
from ecoshell.sessions.markdown import code, fenced, literal, prose, quoted
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.store import SessionInfo
from ecoshell.sessions.tool_graphs import ToolGraph, tool_graphs

TimedEvent = tuple[float, Event]
"""The time in seconds since 1970, and the event."""

_REGISTRATIONS = {
    "agent": "registered",
    "first_call": "registered by its first call",
    "user": "registered by hand",
    "upfront": "loaded at the start",
}
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
        workspace = code(session.workspace)
        parent = f", for a subagent of {code(session.parent)}" if session.parent else ""
        blocks.append(
            f"Session {code(session.id)}{parent}, started {iso_time(session.created)} in {workspace}"
        )
    for at, event in events:
        if isinstance(event, GraphPlanned):
            blocks += _graph_blocks(next(graphs))
        else:
            blocks += _turn_blocks(at, event) or _call_blocks(event) or _line(event)
    return "\n\n".join(blocks) + "\n"


def _graph_blocks(graph: ToolGraph) -> tuple[str, str]:
    repaired = ", repaired" if graph.plan.repaired else ""
    return f"Tool graph{repaired}: {code(graph.plan.text)}", fenced(flowchart(graph), "mermaid")


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
        raise StoreError(
            f"{file} cannot be written: {error.strerror}.", kept=kept, fix=fix
        ) from error


def _turn_blocks(at: float, event: Event) -> tuple[str, ...]:
    """Return the blocks of an event about the whole turn; empty for other events."""
    match event:
        case TurnStarted():
            return _turn_heading(at, event)
        case Rationale():
            return (f"**Thought** ({literal(event.role)})", quoted(event.text))
        case Answer():
            return (f"**{'Partial answer' if event.partial else 'Answer'}**", prose(event.text))
        case TurnFinished():
            usage = event.consumption.usage
            used = f"{usage.input:,} tokens in ({usage.cached:,} cached), {usage.output:,} out"
            tokens = about(used, estimated=event.consumption.estimated)
            return (f"*{' · '.join((event.status.replace('_', ' '), *turn_sums(event), tokens))}*",)
        case CommandRan():
            failed = "" if event.ok else ", failed"
            head = f"**Command** by hand ({event.seconds:.2f} s{failed})"
            return (head, fenced(f"$ {event.command}\n{event.output}"))
        case TurnUndone():
            parts = [f"Turn {event.turn} was undone"]
            parts += [f"restored: {', '.join(map(code, event.restored))}"] if event.restored else []
            parts += [f"left alone: {', '.join(map(code, event.kept))}"] if event.kept else []
            return (f"*{'; '.join(parts)}*",)
        case Compacted():
            by = f"by {code(event.model)}" if event.model else "to an extract"
            sizes = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
            calls = counted(len(event.calls), "earlier call")
            subject = counted(event.turns, "turn") if event.turns else calls
            return (f"**Compacted** {subject} {by}: {sizes}", quoted(event.summary))
        case ResultsTrimmed():
            return (f"*{trimmed_text(event)}*",)
        case _:
            return ()


def _turn_heading(at: float, event: TurnStarted) -> tuple[str, ...]:
    heading = visible_line(event.question, _HEADING_CHARACTERS)
    blocks = [f"## {event.turn}. {literal(heading)}"]
    if heading != event.question.strip():
        blocks.append(quoted(event.question))
    blocks.append(
        " · ".join((iso_time(at), code(event.model), code(event.mode), code(event.strategy)))
    )
    for attachment in event.attachments:
        blocks.append(f"**Attached** {code(attachment.name)}")
        if not attachment.image:
            blocks.append(fenced(attachment.text))
    return tuple(blocks)


def _call_blocks(event: Event) -> tuple[str, ...]:
    """Return the blocks of an event about a call, its verdict or a registration."""
    match event:
        case CallStarted():
            return ("**Call**", fenced(Call(event.name, event.arguments).signature()))
        case CallFinished():
            return _result_blocks(event)
        case CallJudged():
            reason = f": {literal(event.reason)}" if event.reason else ""
            word = "√ helpful" if event.helpful else "× unhelpful"
            verdict = () if event.helpful is None else (f"{word} ({literal(event.by)}{reason})",)
            return (*verdict, quoted(event.note)) if event.note else verdict
        case CallMarked():
            words = {True: "Marked helpful", False: "Marked unhelpful", None: "Mark removed"}
            return (f"{words[event.helpful]} by hand: {code(event.name)} of turn {event.turn}",)
        case ToolRegistered():
            registered = _REGISTRATIONS.get(event.by, "registered")
            return (f"+ {registered} {code(event.name)} ({registration_sizes(event)})",)
        case ToolUnregistered():
            return (f"− unregistered {code(event.name)}",)
        case _:
            return ()


def _result_blocks(event: CallFinished) -> tuple[str, ...]:
    if event.refused:
        outcome = _capitalized(literal(refusal(event.refused)))
    else:
        cut = ", truncated" if event.truncated else ""
        outcome = f"{'Result' if event.ok else 'Failed'} after {event.seconds:.2f} s{cut}"
    changes = (fenced(event.changes, "diff"),) if event.changes else ()
    return (f"**{outcome}**", fenced(event.observation), *changes)


def _line(event: Event) -> tuple[str, ...]:
    """Return the line of a short event; empty for events that only interfaces need."""
    line = ""
    match event:
        case ApprovalGiven() | TrustGiven():
            subject = (
                "Approval"
                if isinstance(event, ApprovalGiven)
                else f"{literal(event.file)} of the project"
            )
            line = f"{subject}: {literal(event.decision)} ({literal(event.by)})"
        case LimitHit():
            line = f"**Limit**: {literal(event.message)}"
        case CapNear():
            line = literal(_capitalized(describe(event)))
        case LimitChosen():
            line = f"Choice: {literal(event.choice)}"
        case StepProposed():
            rationale = f": {literal(event.rationale)}" if event.rationale.strip() else ""
            line = f"Proposed {code(event.step)}{rationale}"
        case BranchLeft():
            line = f"← **{_capitalized(back_to(event))}**: {literal(event.reason)}"
        case PlanChanged(number=1):
            planned = [row for row in event.rows if row.state == "planned"]
            tools = ", ".join(f"{code(row.tool)} up to {row.planned}×" for row in planned)
            advice = "" if event.enforced else "; advice only"
            line = (
                f"Plan ({literal(event.mode)}): {tools or 'no tool'}; {price_range(event)}{advice}"
            )
        case NodeChanged(state="failed" | "denied" | "skipped" | "stopped"):
            reason = f": {literal(event.reason)}" if event.reason else ""
            line = f"{code(event.label)} {event.state}{reason}"
        case (
            PlanScored()
            | Bill()
            | Quote()
            | QuoteChosen()
            | SandboxBlocked()
            | BackgroundStarted()
            | BackgroundEnded()
            | SubagentStarted()
            | SubagentFinished()
            | AdvisorReplied()
            | AdviceFollowed()
        ):
            line = literal(_capitalized(describe(event)))
        case Notice():
            line = f"Note: {literal(event.text)}"
        case ErrorHappened():
            parts = filter(None, (event.message, event.kept, event.fix))
            line = f"**Error**: {literal(' '.join(parts))}"
        case _:
            pass
    return (line,) if line else ()


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
