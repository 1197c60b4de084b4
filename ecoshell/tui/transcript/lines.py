"""From an event to the block that shows it: pure functions, so that what is said can be tested without a screen."""

import json
from collections.abc import Mapping
from typing import Any

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    BudgetSettled,
    CallFinished,
    CallStarted,
    ErrorHappened,
    LimitChosen,
    LimitHit,
    Status,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.tui.figures import duration, money, tokens
from ecoshell.tui.transcript.blocks import Block, Piece, Row, Tone, folded, row, rows_of
from ecoshell.untrusted import visible, visible_line

QUESTION_LINES = 12
OBSERVATION_LINES = 4
_WIDEST_VALUE = 60
_LONGEST_MARKDOWN = 50_000
_ENDINGS: Mapping[Status, tuple[str, Tone]] = {
    "answered": ("", "muted"),
    "limit": ("limit reached", "warning"),
    "gave_up": ("gave up", "warning"),
    "error": ("error", "error"),
    "interrupted": ("stopped", "warning"),
}
_CHOICES = {
    "raise": "the cap is raised",
    "model": "going on with another model",
    "answer": "answering from what there is",
    "stop": "stopping",
}
_DECISIONS = {
    "once": "approved, this once",
    "session": "approved for this session",
    "project": "approved for this project",
    "no": "not approved",
}
_DECIDERS = {"person": "by you", "rule": "by a rule in the settings", "nobody": "nobody was there to ask"}


def question(text: str, *, waiting: str = "") -> Block:
    """What the person asked, long pastes folded; `waiting` says what it waits for."""
    shown, more = folded(text, lines=QUESTION_LINES, characters=4_000)
    rows = rows_of(shown, "question")
    notes = tuple(row(Piece(note, "muted")) for note in (more, waiting) if note)
    return Block("❯", "question", rows + notes, gap=True)


def rationale(text: str) -> Block:
    """A finished thought."""
    return Block("◆", "thought", rows_of(text.strip(), "thought"))


def offered(event: ToolsOffered) -> Block:
    """What the model knows of its tools as the turn starts, and why."""
    approx = "" if event.exact else "≈ "
    count = f"{len(event.names)} tools by name"
    upfront = f", {len(event.upfront)} registered up front" if event.upfront else ""
    sizes = f" · {approx}{tokens(event.context_tokens)} of {tokens(event.everything_tokens)} tok"
    why = f" · {visible_line(event.why)}" if event.why else ""
    return Block("·", "muted", (row(Piece(f"{count}{upfront}{sizes}{why}", "muted")),))


def registered(event: ToolRegistered) -> Block:
    """A tool whose document is in the context from now on."""
    approx = "" if event.exact else "≈ "
    by = " by you" if event.by == "user" else ""
    name = Piece(visible_line(event.name), "tool")
    size = Piece(f"{by}  +{approx}{event.tokens:,} tok", "muted")
    return Block("＋", "good", (row(Piece("registered ", "good"), name, size),))


def unregistered(name: str) -> Block:
    """A tool whose document has left the context."""
    return Block("−", "warning", (row(Piece("unregistered ", "warning"), Piece(visible_line(name), "tool")),))


def call(started: CallStarted | None, finished: CallFinished | None = None) -> Block:
    """A call as it runs or, once finished, with its time and its observation."""
    if finished is None:
        head = _signature(started) if started else ()
        return Block("▸", "tool", (row(*head, Piece("  running …", "muted")),))
    head = _signature(started) if started else (Piece(visible_line(finished.name), "tool"),)
    if finished.refused:
        ending, tone = Piece(f"  refused: {visible_line(finished.refused)}", "warning"), "warning"
    elif not finished.ok:
        ending, tone = Piece(f"  failed after {duration(finished.seconds)}", "error"), "error"
    else:
        ending, tone = Piece(f"  {duration(finished.seconds)}", "muted"), "tool"
    return Block("▸", tone, (row(*head, ending), *_observation(finished)))


def approval(name: str, event: ApprovalGiven) -> Block:
    """Who decided on a call, and how."""
    tone: Tone = "warning" if event.decision == "no" else "muted"
    words = f"{_DECISIONS.get(event.decision, event.decision)}, {_DECIDERS.get(event.by, event.by)}"
    return Block("?", tone, (row(Piece(visible_line(name), "tool"), Piece(f"  {words}", tone)),))


def limit(event: LimitHit) -> Block:
    """The cap that stands in the way."""
    return Block("■", "warning", (row(Piece("limit reached  ", "warning"), Piece(visible_line(event.message))),))


def chosen(event: LimitChosen) -> Block:
    """What was chosen at the limit."""
    return Block("→", "warning", (row(Piece(_CHOICES.get(event.choice, event.choice), "muted")),))


def notice(text: str) -> Block:
    """Something to know that stops nothing."""
    return Block("!", "warning", rows_of(text))


def plain(text: str) -> Block:
    """What a command printed."""
    return Block("", "text", rows_of(text), gap=True)


def answer(event: Answer) -> Block:
    """The answer, set as Markdown."""
    head = (row(Piece("partial answer, from what there is", "warning")),) if event.partial else ()
    text = event.text.strip()
    if len(text) > _LONGEST_MARKDOWN:  # setting it would hold up the screen
        return Block("✔", "good", head + rows_of(text))
    return Block("✔", "good", head, markdown=visible(text))


def error(event: ErrorHappened) -> Block:
    """What went wrong, what was kept, and what to do."""
    more = [line for text in (event.kept, event.fix) if text for line in rows_of(text)]
    return Block("✖", "error", (*rows_of(event.message, "error"), *more))


def settled(event: BudgetSettled) -> Block | None:
    """What is unusual about a payment; None for the usual one."""
    if event.overrun_nano:
        over = f"{visible_line(event.model)} billed {money(event.overrun_nano)} more than was reserved for the call"
        return notice(f"{over}: the overrun is recorded, and no more calls go to it under a cap.")
    if not event.reported:
        whole = money(event.spent_nano) if event.spent_nano else f"{event.usage.total:,} tokens"
        return notice(f"No usage was reported for this call: its whole reservation ({whole}) counts as spent.")
    return None


def footer(event: TurnFinished) -> Block:
    """The turn's sums: cost, steps, time, tokens saved; and its ending, unless it ended in an answer."""
    ending, tone = _ENDINGS[event.status]
    sums = [money(event.spent_nano), _counted(event.steps, "step"), duration(event.seconds)]
    if event.saved_tokens > 0:
        sums.append(f"saved {tokens(event.saved_tokens)} tok")
    head = (Piece(f"{ending} · ", tone),) if ending else ()
    return Block("■" if ending else "", tone, (row(*head, Piece(" · ".join(sums), "muted")),))


def welcome(version: str) -> Block:
    """The first thing on an empty screen."""
    promise = "Ask anything. The agent knows its tools by name, registers those it needs, and never overspends."
    keys = (("/help", "lists the commands · "), ("/budget 0.50", "sets a cap · "), ("esc", "stops a turn"))
    pieces = [piece for key, use in keys for piece in (Piece(key, "tool"), Piece(f" {use}", "muted"))]
    return Block("◆", "good", (row(Piece(f"ecoshell {version}", "question")), row(Piece(promise)), row(*pieces)))


def arguments_rows(arguments: Mapping[str, Any], *, lines: int = 6) -> tuple[Row, ...]:
    """Arguments one below the other, long ones folded: what a person looks at before allowing a call."""
    rows: list[Row] = []
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        shown, more = folded(text, lines=lines, characters=600)
        first, *others = visible(shown).split("\n")
        rows.append(row(Piece(f"{visible_line(key)} = ", "muted"), Piece(first)))
        rows.extend(row(Piece(line), lead="    ") for line in others)
        if more:
            rows.append(row(Piece(more, "muted"), lead="    "))
    return tuple(rows)


def _signature(started: CallStarted) -> tuple[Piece, ...]:
    inside = ", ".join(f"{visible_line(key)}={_short(value)}" for key, value in started.arguments.items())
    return (Piece(visible_line(started.name), "tool"), Piece(f"({inside})"))


def _short(value: object) -> str:
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = visible_line(written[:500])
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 1] + "…"


def _observation(finished: CallFinished) -> tuple[Row, ...]:
    text = finished.observation.strip("\n")
    if not text:
        return ()
    shown, more = folded(text, lines=OBSERVATION_LINES, characters=800)
    lines = visible(shown).split("\n")
    notes = [note for note in (more, "… truncated by the tool's output limit" if finished.truncated else "") if note]
    rows = [row(Piece(line), lead="  " if at else "└ ") for at, line in enumerate(lines)]
    return (*rows, *(row(Piece(note, "muted"), lead="  ") for note in notes))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
