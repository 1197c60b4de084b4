"""Blocks for events, as pure functions that can be tested without a screen."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from ecoshell.agent.scoring import outcome
from ecoshell.budget import counted
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
    CallStarted,
    CapNear,
    CommandRan,
    Compacted,
    ContextTold,
    CostChosen,
    CostWanted,
    ErrorHappened,
    Event,
    HookRan,
    LimitChosen,
    LimitHit,
    PlanChanged,
    PlanScored,
    PlanWritten,
    Quote,
    QuoteChosen,
    Rationale,
    Reasoned,
    ResultsTrimmed,
    SandboxBlocked,
    Status,
    StepProposed,
    SubagentFinished,
    SubagentStarted,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnUndone,
)
from ecoshell.events.describe import (
    ENDINGS,
    back_to,
    compacted_text,
    describe,
    duration,
    length_text,
    loaded_share,
    near_cap,
    plan_news,
    refusal,
    registration_sizes,
    registration_words,
    subagent_end,
    trimmed_text,
    turn_sums,
)
from ecoshell.messages import Attachment, visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing, headline
from ecoshell.tui.text import amount, money, tokens
from ecoshell.tui.transcript.blocks import (
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
COMMAND_LINES = 12
STOPPED, WAITS = "stopped", "waits for your approval"
"""States of a call without an ending, and of one that waits for approval."""
ARGUMENT_LINES = 6
_WIDEST_VALUE = 60
_WIDEST_TASK = 200
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
_MAX_LEAD = 44
"""Width of the columns after which the last one is wrapped on its own."""
_DESCRIBED: Mapping[type[Event], str] = {
    AdviceFollowed: "→", AdvisorReplied: "◊", Bill: "$", PlanWritten: "≡", Quote: "$", QuoteChosen: "→",
    ContextTold: "·", TrustGiven: "?", PlanScored: "◦", LimitChosen: "→", CostChosen: "→",
    SandboxBlocked: "?", HookRan: "·", BackgroundStarted: "►", BackgroundEnded: "►",
}  # fmt: skip
"""The signs of events shown with `describe`."""
_ANSWERS: Mapping[Status, tuple[str, Tone]] = {
    "answered": ("√", "good"),
    "limit": ("≈", "warning"),
    "gave_up": ("Ø", "warning"),
    "error": ("≈", "error"),
    "interrupted": ("≈", "warning"),
}
"""The signs of complete and partial answers, and of a turn without one."""
_DECISIONS = {
    "once": "approved, this once",
    "session": "approved for this session",
    "project": "approved for this project",
    "no": "denied",
}
_DECIDERS = {
    "person": " by you",
    "rule": " by a rule in the settings",
    "plan mode": " in plan mode",
    "nobody": ": no one was available to ask",
}


def question(text: str, *, waiting: str = "", attachments: Sequence[Attachment] = ()) -> Block:
    """A question with its attachments; long pastes are folded. `waiting` is a note below it."""
    bodies = [Body(visible(text), QUESTION_LINES, tone="question", indent="")]
    for attachment in attachments:
        if attachment.image is not None:
            bodies.append(Body("", 0, head=row(Piece(visible_line(attachment.text), "tool"))))
            continue
        attached = visible(attachment.text).rstrip("\n")
        size = counted(attached.count("\n") + 1, "line")
        head = row(
            Piece(f"¶ {visible_line(attachment.name)}", "tool"), Piece(f" · {size}", "muted")
        )
        bodies.append(Body(attached, 0, tone="muted", head=head))
    if waiting:
        bodies.append(Body("", 0, head=row(Piece(waiting, "muted"))))
    return Block("›", "question", bodies=tuple(bodies), gap=True, turn=True)


def rationale(event: Rationale) -> Block:
    """A finished thought and its role."""
    first, *more = rows_of(event.text.strip(), "thought")
    return Block("◊", "thought", (row(*_by(event.role), *first.pieces), *more))


def reasoning(event: Reasoned, *, arriving: bool = False) -> Block:
    """The reasoning before a reply, folded."""
    summary = f"thinking … {length_text(event.text)}" if arriving else describe(event)
    head = row(*_by(event.role), Piece(summary, "muted"))
    return Block(
        "◦", "muted", bodies=(Body(visible(event.text.strip()), 0, tone="muted", head=head),)
    )


def _by(role: str) -> tuple[Piece, ...]:
    """The role, if several share the turn."""
    return (Piece(f"{role}  ", "muted"),) if role in ROLES else ()


def plan(event: PlanChanged, previous: PlanChanged | None) -> Block | None:
    """The first plan of a turn, or the tools a later one newly forbids; None if it forbids none."""
    tone: Tone = "muted" if event.number <= 1 else "warning"
    text = plan_news(previous, event, amount)
    return _line("·", tone, Piece(text, tone)) if text else None


def graph(progress: ToolGraph, name: str) -> Block:
    """A tool graph with its estimate, the states of its nodes and, in the end, its outcome."""
    title, about = headline(progress)
    head = row(Piece(title, "thought"), Piece(f" · {about}", "muted"))
    end = row(Piece(outcome(progress), "muted"), lead="└ ")
    bodies = (Body("", 0, head=end),) if progress.is_settled else ()
    return Block("◦", "thought", (head,), drawing=Drawing(progress), bodies=bodies, name=name)


def verdict(judged: bool | None, marked: bool | None) -> tuple[Piece, ...]:
    """The verdict on a result, for the end of its line; the user's mark overrides the judge."""
    if marked is not None:
        sign: Piece = Piece("√ helpful", "good") if marked else Piece("× unhelpful", "error")
        return (sign, Piece(", marked by you", "muted"))
    if judged is None:
        return ()
    return (Piece("√", "good") if judged else Piece("× unhelpful", "warning"),)


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
    tone: Tone = "tool"
    if denied is not None and finished.refused:
        by = _DECIDERS.get(denied.by, "")
        instead = row(Piece("do this instead: ", "muted"), Piece(visible_line(denied.instead)))
        rows = (instead,) if denied.instead else ()
        bodies = tuple(_outcome(finished)) if denied.by == "rule" else ()
        return Block(
            "►", "warning", (call_row(head, Piece(f"denied{by}", "warning")), *rows), bodies=bodies
        )
    price = "" if finished.spent_nano == 0 else f"{money(finished.spent_nano)}  "
    cost = f"{price}{duration(finished.seconds)}"
    if finished.refused:
        ending, tone = Piece(refusal(finished.refused), "warning"), "warning"
    elif not finished.ok:
        ending, tone = Piece(f"failed after {cost}", "error"), "error"
    else:
        ending = Piece(cost, "muted")
    return Block("►", tone, (call_row(head, ending),), bodies=tuple(_outcome(finished)))


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
        tone = (
            "tool"
            if ended.status == "answered"
            else "error"
            if ended.status == "error"
            else "warning"
        )
        ending = Piece(
            subagent_end(ended).rpartition(" · ")[0], "muted" if tone == "tool" else tone
        )
    elif stopped:
        tone, ending = "warning", Piece(STOPPED, "warning")
    else:
        share = f"at most {started.share}" if started.share else "running"
        ending = Piece(f"{visible_line(progress).partition(' · ')[0] or share} …", "muted")
    line = Row(head, tail=(ending,), crops=True, folds=True)
    return Block("»", tone, (line,), session=(started.session, started.name))


def approval(name: str, event: ApprovalGiven) -> Block:
    """A decision on a call and who made it, with edited arguments, if any."""
    tone: Tone = "warning" if event.decision == "no" else "muted"
    words = f"{_DECISIONS.get(event.decision, event.decision)}{_DECIDERS.get(event.by, event.by)}"
    rows = [row(Piece(visible_line(name), "tool"), Piece(f"  {words}", tone))]
    if event.arguments is not None:
        rows.append(row(Piece("with arguments edited by you:", "muted")))
    for key, value in (event.arguments or {}).items():
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        text, note = preview(text, lines=ARGUMENT_LINES, characters=600)
        first, *more = visible(text).split("\n")
        rows.append(row(Piece(f"{visible_line(key)} = ", "muted"), Piece(first)))
        rows.extend(row(Piece(line), lead="    ") for line in more)
        if note:
            rows.append(row(Piece(note, "muted"), lead="    "))
    return Block("?", tone, tuple(rows))


def notice(text: str) -> Block:
    """A warning."""
    return Block("!", "warning", rows_of(text))


def command_output(text: str) -> Block:
    """The output of a command; long table lines are wrapped below their last column."""
    rows: list[Row] = []
    for line in visible(text).split("\n"):
        at = max((gap.end() for gap in _GAP.finditer(line) if gap.end() <= _MAX_LEAD), default=0)
        rows.append(row(Piece(line[at:]), lead=line[:at]))
    return Block("", "text", tuple(rows), gap=True)


def answer(event: Answer, status: Status = "answered") -> Block:
    """The answer as Markdown; its sign shows how the turn ended."""
    head = (
        (row(Piece("partial answer from the results so far", "warning")),) if event.partial else ()
    )
    sign, tone = _ANSWERS["limit" if event.partial and status == "answered" else status]
    return Block(sign, tone, head, markdown=visible(event.text.strip()), gap=True)


def error(event: ErrorHappened) -> Block:
    """What happened, what was kept, and what to do next."""
    more = [line for text in (event.kept, event.fix) if text for line in rows_of(text)]
    return Block("×", "error", (*rows_of(event.message, "error"), *more))


def footer(event: TurnFinished, by: str = "") -> Block:
    """The turn's cost, steps, time and saved tokens, and its ending unless it is an answer."""
    ending = "" if event.status == "answered" else ENDINGS[event.status]
    tone: Tone = "error" if event.status == "error" else "warning" if ending else "muted"
    sums = turn_sums(event)
    if event.consumption.nano == 0:
        sums[0] = f"{tokens(event.consumption.usage.total)} tok"
    if event.saved_tokens > 0 and event.spent_nano:
        sums.append(f"saved {tokens(event.saved_tokens)} tok")
    if by in ROLES:
        sums.append(f"by the {by}")
    head = (Piece(f"{ending} · ", tone),) if ending else ()
    return Block("■" if ending else "", tone, (row(*head, Piece(" · ".join(sums), "muted")),))


def _signature(started: CallStarted) -> tuple[Piece, ...]:
    arguments: list[str] = []
    for key, value in started.arguments.items():
        written = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        arguments.append(f"{visible_line(key)}={visible_line(written[:500], _WIDEST_VALUE)}")
    return (
        *_by(started.role),
        Piece(visible_line(started.name), "tool"),
        Piece(f"({', '.join(arguments)})"),
    )


def _outcome(event: CallFinished | CommandRan) -> Iterator[Body]:
    """The output of a call or command, and its file changes."""
    is_call = isinstance(event, CallFinished)
    text = (event.observation if is_call else event.output).strip("\n")
    if text:
        yield Body(visible(text), OBSERVATION_LINES if is_call else COMMAND_LINES, corner="└ ")
    if event.truncated:
        yield Body(
            "", 0, head=row(Piece("… truncated by the tool's output limit", "muted"), lead="  ")
        )
    if is_call and event.changes.strip():
        lines = event.changes.split("\n")
        added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        head = row(
            Piece(f"+{added:,}", "added"), Piece(" "), Piece(f"−{removed:,}", "removed"), lead="└ "
        )
        yield Body(visible(event.changes.strip("\n")), CHANGED_LINES, kind="diff", head=head)


def block_of(event: Event) -> Block | None:
    """The block of a self-contained event; None for events shown elsewhere."""
    tone: Tone
    block: Block | None = None
    match event:
        case _ if type(event) in _DESCRIBED:
            text = describe(event)
            block = _line(_DESCRIBED[type(event)], "muted", Piece(text, "muted")) if text else None
        case StepProposed():
            reason = (
                [Piece(f"  {visible_line(event.rationale)}", "thought")]
                if event.rationale.strip()
                else []
            )
            block = _line(
                "◦", "muted", Piece("proposed  ", "muted"), Piece(visible_line(event.step)), *reason
            )
        case ToolsOffered():
            approx = "" if event.exact else "≈ "
            sizes = f" · {approx}{tokens(event.context_tokens)} of {tokens(event.everything_tokens)} tok"
            why = f" · {visible_line(event.why)}" if event.why else ""
            words = f"{loaded_share(event)}{sizes}{why}"
            block = _line("·", "muted", Piece(words, "muted"))
        case ToolRegistered():
            name = Piece(visible_line(event.name), "tool")
            sizes = Piece(f" · {registration_sizes(event)}", "muted")
            block = _line("+", "good", name, Piece(f" {registration_words(event)}", "good"), sizes)
        case ToolUnregistered():
            name = Piece(visible_line(event.name), "tool")
            block = _line("−", "warning", Piece("unregistered ", "warning"), name)
        case BranchLeft():
            reason = Piece(visible_line(event.reason), "muted")
            block = _line("←", "warning", Piece(f"{back_to(event)}  ", "warning"), reason)
        case CapNear():
            block = _line("■", "warning", Piece(near_cap(event), "warning"))
        case LimitHit():
            block = _line(
                "■",
                "warning",
                Piece("limit reached  ", "warning"),
                Piece(visible_line(event.message)),
            )
        case CostWanted():
            span = f"{money(event.low_nano)} to {money(event.high_nano)}"
            estimate = Piece(f"the next step with {visible_line(event.model)} may cost {span}")
            why = f"  ask_above is {money(event.threshold_nano)}"
            block = _line("?", "warning", estimate, Piece(why, "muted"))
        case CommandRan():
            took = duration(event.seconds)
            tone = "muted" if event.ok else "error"
            end = Piece(took if event.ok else f"failed after {took}", tone)
            head = (call_row((Piece(visible_line(event.command), "question"),), end),)
            bodies = tuple(_outcome(event))
            block = Block(
                "$", "tool" if event.ok else "error", head, bodies=bodies, gap=True, turn=True
            )
        case TurnUndone():
            block = _undone(event)
        case Compacted():
            words = compacted_text(event).rpartition(":")[0]
            sizes = f" · {tokens(event.tokens_before)} → {tokens(event.tokens_after)} tok"
            summary = Body(visible(event.summary.strip()), 2, kind="markdown")
            block = Block(
                "≡", "good", (row(Piece(words, "good"), Piece(sizes, "muted")),), bodies=(summary,)
            )
        case ResultsTrimmed():
            block = _line("≡", "good", Piece(trimmed_text(event), "muted"))
        case _:
            pass
    return block


def _undone(event: TurnUndone) -> Block:
    """An undone turn, with the files that were restored and those that were not."""
    rows = [row(Piece(f"turn {event.turn} was undone and removed from the context", "warning"))]
    if event.restored:
        rows.append(
            row(Piece("restored  ", "muted"), Piece(visible_line(", ".join(event.restored))))
        )
    if event.kept:
        why = Piece("not restored because of later changes  ", "warning")
        rows.append(row(why, Piece(visible_line(", ".join(event.kept)))))
    return Block("«", "warning", tuple(rows))


def _line(sign: str, tone: Tone, *pieces: Piece) -> Block:
    return Block(sign, tone, (row(*pieces),))
