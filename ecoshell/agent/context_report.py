"""The use of a model's context: the data behind /context, with its bar and table as plain text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ecoshell.agent.command_table import table
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory
from ecoshell.agent.past_turn import PastTurn
from ecoshell.agent.view import LARGE_CONTEXT, View, summary_messages
from ecoshell.budget import counted
from ecoshell.events import ContextTold
from ecoshell.images import image_tokens
from ecoshell.messages import Image, visible_line

Kind = Literal["system", "tools", "files", "turns", "results", "images"]
KINDS: dict[Kind, tuple[str, str]] = {
    "system": ("s", "system prompt"),
    "tools": ("t", "tool schemas and names"),
    "files": ("f", "files and workspace"),
    "turns": ("q", "questions, replies, summaries"),
    "results": ("r", "tool results"),
    "images": ("i", "images"),
}
"""The letter of each kind in a bar, and its description."""
FREE = "·"
_BAR = 60
_INSTRUCTIONS = {"user": "your AGENTS.md", "project": "AGENTS.md", "facts": "workspace facts"}


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The tokens of one part of a context."""

    kind: Kind
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The parts of the next request to a model."""

    model: str
    context: int | None
    used: int
    exact: bool
    """Whether the model's tokenizer counted."""
    compact_at: int | None
    """Tokens from which the context is compacted automatically; None for never."""
    uses: tuple[ContextUse, ...]

    def tokens_of(self, kind: Kind) -> int:
        return sum(use.tokens for use in self.uses if use.kind == kind)


def report_of(deps: Dependencies, memory: Memory, view: View) -> ContextReport:
    """Measure the next request of a session with this view; may block."""
    call = deps.models.current.mode.forecast(view).steps[0]
    model, request = call.model, call.request
    context, share, compact_at = model.traits.context, deps.settings.compact_at, None
    if share != "off" and context is not None and context >= LARGE_CONTEXT:
        compact_at = int(context * share)
    turns = [*(memory.turns if view.history else ()), *filter(None, (memory.open_turn,))]
    summary = memory.summary if view.history else ""
    workspace = memory.shown.context
    size, count = model.size(request), model.count
    system = sum(count(message.text) for message in request.messages if message.speaker == "system")
    uses = [ContextUse("system", "system prompt", system)]
    loaded = [tool for tool in request.tools if not tool.deferred]
    uses += [ContextUse("tools", tool.name, count(tool.entry)) for tool in loaded]
    if summary:
        tokens = sum(count(message.text) for message in summary_messages(summary))
        uses.append(ContextUse("turns", "summary", tokens))
    listings = 0 if memory.open_turn or not view.opening else count(view.opening)
    results, images = Counter[str](), list[Image]()
    for turn in turns:
        listings += count(turn.listing) if turn.listing else 0
        uses += _files_of(turn, workspace, count)
        for message in turn.messages:
            images += message.images
            if message.speaker == "tool":
                results[message.call.subject if message.call else "tool"] += count(message.text)
    if listings:
        uses.append(ContextUse("tools", "names and schemas in the text", listings))
    uses += [ContextUse("results", name, tokens) for name, tokens in results.most_common()]
    if images:
        tokens = sum(map(image_tokens, images)) if model.traits.vision is not False else 0
        uses.append(ContextUse("images", counted(len(images), "image"), tokens))
    remainder = size.count - sum(use.tokens for use in uses)
    uses.append(ContextUse("turns", "questions, replies and calls", max(0, remainder)))
    kinds = [*KINDS]
    uses.sort(key=lambda use: (kinds.index(use.kind), -use.tokens))
    name = model.traits.name
    return ContextReport(name, context, size.count, size.exact, compact_at, tuple(uses))


def _files_of(
    turn: PastTurn, workspace: ContextTold | None, count: Callable[[str], int]
) -> Sequence[ContextUse]:
    uses = [ContextUse("files", file.name, count(file.text)) for file in turn.attachments]
    if turn.context and workspace is not None and workspace.text == turn.context:
        parts = [(part.name, part.tokens) for part in workspace.parts if part.tokens]
        uses += [ContextUse("files", _INSTRUCTIONS[name], tokens) for name, tokens in parts]
    elif turn.context:
        uses.append(ContextUse("files", "AGENTS.md and workspace facts", count(turn.context)))
    return uses


def bar_cells(report: ContextReport, width: int) -> list[tuple[str, Kind | None]]:
    """The context as a bar of signs with their kinds; every kind in use has at least one sign.

    A sign is the letter of the kind, a dot for free space, or `|` at the automatic compaction.
    """
    total = max(report.used, report.context or report.used, 1)
    cells: list[tuple[str, Kind | None]] = []
    for kind, (letter, _) in KINDS.items():
        tokens = report.tokens_of(kind)
        if tokens:
            cells.extend((letter, kind) for _ in range(max(1, round(tokens * width / total))))
    cells = cells[:width]
    cells.extend((FREE, None) for _ in range(width - len(cells)))
    if report.compact_at is not None and report.context:
        at = min(width - 1, report.compact_at * width // total)
        cells[at] = ("|", None)
    return cells


def headline(report: ContextReport) -> str:
    """The use of the context in one or two sentences."""
    about, model = "" if report.exact else "≈ ", visible_line(report.model)
    used = f"{model}: {about}{report.used:,}"
    if report.context is None:
        return f"{used} tokens in the next request; its context is unknown."
    share, left = f"{100 * report.used / report.context:.0f} %", report.context - report.used
    words = f"{used} of {report.context:,} tokens ({share}), {max(0, left):,} left."
    if report.compact_at is not None:
        words += f" Compacted automatically at {report.compact_at:,}."
    return words


def report_rows(report: ContextReport) -> list[tuple[str, str, str, str]]:
    """The rows of the table: kind, name, tokens, share of the context."""
    total = report.context or report.used or 1
    return [
        (
            f"{KINDS[use.kind][0]} {use.kind}",
            visible_line(use.name, 40),
            f"{use.tokens:,}",
            f"{100 * use.tokens / total:.1f} %",
        )
        for use in report.uses
    ]


def report_text(report: ContextReport) -> str:
    """The report as plain text."""
    head = ("part", "what", "tokens" if report.exact else "≈ tokens", "share")
    bar = "".join(sign for sign, _ in bar_cells(report, _BAR))
    return f"{headline(report)}\n[{bar}]\n\n{table(head, report_rows(report))}"
