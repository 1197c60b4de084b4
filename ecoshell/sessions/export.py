"""A session as a document: Markdown for people, JSON for programs; both are written from its events alone."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ecoshell.budget import about, counted
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    BranchLeft,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitChosen,
    LimitHit,
    ModeChosen,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanScored,
    Rationale,
    ResultsTrimmed,
    StepProposed,
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
from ecoshell.sessions import SessionInfo
from ecoshell.sessions.markdown import code, fenced, literal, prose, quoted
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.plans import tool_graphs

Timed = tuple[float, Event]
"""When an event was written (seconds since 1970), and the event."""

_BY = {
    "agent": "registered",
    "first_call": "registered by its first call",
    "user": "registered by hand",
    "upfront": "registered up front",
}
_LONGEST_HEADLINE = 80


def as_json(events: Iterable[Timed], session: SessionInfo | None = None) -> str:
    """One JSON object: `session` (where known) and `events`, each with its time as `at`."""
    document: dict[str, object] = {}
    if session is not None:
        document["session"] = {
            "id": session.id,
            "title": session.title,
            "created": iso_time(session.created),
            "updated": iso_time(session.updated),
            "workspace": session.workspace,
            "model": session.model,
        }
    document["events"] = [{"at": iso_time(at), **to_json(event)} for at, event in events]
    return json.dumps(document, indent=2) + "\n"


def as_markdown(events: Iterable[Timed], session: SessionInfo | None = None, *, running: bool = False) -> str:
    """Questions, thoughts, registrations, calls with their results, answers and costs, in the order they happened.

    A tool graph is drawn as it stood at last; with `running` the last turn goes on.
    """
    events = _by_call(events)
    plans = iter(tool_graphs((event for _, event in events), running=running))
    blocks = [f"# {literal(session.title) if session and session.title else 'A session with ecoshell'}"]
    if session is not None:
        blocks.append(f"Session {code(session.id)}, begun {iso_time(session.created)} in {code(session.workspace)}")
    for at, event in events:
        if isinstance(event, GraphPlanned):
            tool_graph = next(plans)
            head = f"Tool graph{', repaired' if tool_graph.plan.repaired else ''}: {code(tool_graph.plan.text)}"
            blocks += [head, fenced(flowchart(tool_graph), "mermaid")]
        else:
            blocks += _turn_blocks(at, event) or _call_blocks(event) or _line(event)
    return "\n\n".join(blocks) + "\n"


def _by_call(events: Iterable[Timed]) -> list[Timed]:
    """The events in their order, but what came of a call right after it: calls run side by side."""
    found: list[list[Timed]] = []
    calls: dict[str, list[Timed]] = {}
    for at, event in events:
        match event:
            case TurnStarted():  # ids are those of one turn
                calls.clear()
            case CallStarted():
                found.append([(at, event)])
                calls[event.id] = found[-1]
                continue
            case ApprovalGiven() | CallFinished() | CallJudged() if event.id in calls:
                calls[event.id].append((at, event))
                continue
            case _:
                pass
        found.append([(at, event)])
    return [timed for group in found for timed in group]


def iso_time(at: float) -> str:
    """Seconds since 1970 as a date and time in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # no time: the file is damaged there
        return str(at)


def write_new(file: Path, text: str, *, kept: str = "The session is kept.", mode: int = 0o666) -> None:
    """Write a new file, whole or not at all; `mode` is its permissions, less the umask.

    Raises UsageError when there is one already, and StoreError when it cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(descriptor)  # some disks say only now that they are full
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{file} exists already.", fix="Name a file that does not.") from None
    except ValueError:  # a NUL
        raise UsageError(f"{visible_line(str(file))} cannot be the name of a file.", fix="Name another one.") from None
    except OSError as error:
        fix = remedy(error, "Name another file.")
        raise StoreError(f"{file} cannot be written: {error.strerror}.", kept=kept, fix=fix) from error


def _turn_blocks(at: float, event: Event) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    match event:
        case TurnStarted():
            line = visible_line(event.question, _LONGEST_HEADLINE)
            headline = literal(line)
            full = () if line == event.question.strip() else (quoted(event.question),)
            how = " · ".join((iso_time(at), code(event.model), code(event.mode), code(event.strategy)))
            along = [
                block
                for one in event.attachments
                for block in (f"**Attached** {code(one.name)}", *(() if one.image else (fenced(one.text),)))
            ]
            found = (f"## {event.turn}. {headline}", *full, how, *along)
        case Rationale():
            found = (f"**Thought** ({literal(event.role)})", quoted(event.text))
        case Answer():
            found = (f"**{'Partial answer' if event.partial else 'Answer'}**", prose(event.text))
        case TurnFinished():
            usage = event.consumption.usage
            used = f"{usage.input:,} tokens in ({usage.cached:,} cached), {usage.output:,} out"
            tokens = about(used, estimated=event.consumption.estimated)
            found = (f"*{' · '.join((event.status.replace('_', ' '), *turn_sums(event), tokens))}*",)
        case CommandRan():
            failed = "" if event.ok else ", failed"
            found = (
                f"**Command** by hand ({event.seconds:.2f} s{failed})",
                fenced(f"$ {event.command}\n{event.output}"),
            )
        case TurnUndone():
            parts = [f"Turn {event.turn} was undone"]
            parts += [f"restored: {', '.join(map(code, event.restored))}"] if event.restored else []
            parts += [f"left alone: {', '.join(map(code, event.kept))}"] if event.kept else []
            found = (f"*{'; '.join(parts)}*",)
        case Compacted():
            by = f"by {code(event.model)}" if event.model else "to an extract"
            sizes = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
            what = counted(event.turns, "turn") if event.turns else counted(len(event.calls), "earlier call")
            found = (f"**Compacted** {what} {by}: {sizes}", quoted(event.summary))
        case ResultsTrimmed():
            found = (f"*{trimmed_text(event)}*",)
        case _:
            pass
    return found


def _call_blocks(event: Event) -> tuple[str, ...]:
    """A call, what came of it, what was thought of that, and what the model was told of the plan after it."""
    found: tuple[str, ...] = ()
    match event:
        case CallStarted():
            found = ("**Call**", fenced(Call(event.name, event.arguments).signature()))
        case CallFinished():
            told = literal(refusal(event.refused))
            outcome = f"{told[:1].upper()}{told[1:]}"
            if not event.refused:
                cut = ", truncated" if event.truncated else ""
                outcome = f"{'Result' if event.ok else 'Failed'} after {event.seconds:.2f} s{cut}"
            changes = (fenced(event.changes, "diff"),) if event.changes else ()
            found = (f"**{outcome}**", fenced(event.observation), *changes)
        case CallJudged():
            by = f" ({literal(event.by)}{f': {literal(event.reason)}' if event.reason else ''})"
            word = "√ helpful" if event.helpful else "× unhelpful"
            said = () if event.helpful is None else (f"{word}{by}",)
            found = (*said, quoted(event.note)) if event.note else said
        case CallMarked():
            word = {True: "Marked helpful", False: "Marked unhelpful", None: "Mark removed"}[event.helpful]
            found = (f"{word} by hand: {code(event.name)} of turn {event.turn}",)
        case ToolRegistered():
            found = (f"+ {_BY.get(event.by, 'registered')} {code(event.name)} ({registration_sizes(event)})",)
        case ToolUnregistered():
            found = (f"− unregistered {code(event.name)}",)
        case _:
            pass
    return found


def _line(event: Event) -> tuple[str, ...]:
    """What one line tells; nothing for events that only a screen needs."""
    line = ""
    match event:
        case ApprovalGiven() | TrustGiven():
            what = "Approval" if isinstance(event, ApprovalGiven) else "AGENTS.md of the project"
            line = f"{what}: {literal(event.decision)} ({literal(event.by)})"
        case LimitHit():
            line = f"**Limit**: {literal(event.message)}"
        case LimitChosen():
            line = f"Choice: {literal(event.choice)}"
        case StepProposed():
            said = f": {literal(event.rationale)}" if event.rationale.strip() else ""
            line = f"Proposed {code(event.step)}{said}"
        case BranchLeft():
            where = back_to(event)
            line = f"← **{where[:1].upper()}{where[1:]}**: {literal(event.reason)}"
        case PlanChanged(number=1):
            tools = ", ".join(f"{code(row.tool)} up to {row.planned}×" for row in event.rows if row.state == "planned")
            advice = "" if event.enforced else "; advice only"
            line = f"Plan ({literal(event.mode)}): {tools or 'no tool'}; {price_range(event)}{advice}"
        case ModeChosen():
            line = f"{code(event.mode)} thinks: {literal(event.why)}"
        case NodeChanged(state="failed" | "denied" | "skipped" | "stopped"):
            reason = f": {literal(event.reason)}" if event.reason else ""
            line = f"{code(event.label)} {event.state}{reason}"
        case PlanScored():
            told = describe(event)
            line = literal(told[:1].upper() + told[1:])
        case Notice():
            line = f"Note: {literal(event.text)}"
        case ErrorHappened():
            line = f"**Error**: {literal(' '.join(part for part in (event.message, event.kept, event.fix) if part))}"
        case _:
            pass
    return (line,) if line else ()
