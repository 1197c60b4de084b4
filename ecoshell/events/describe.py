"""Events as text, shared by all interfaces, which add their own formatting."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ecoshell.budget import NANO, Unit, about, amount_text, counted, rounded_up
from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    BackgroundEnded,
    BackgroundStarted,
    Bill,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallProgressed,
    CallStarted,
    CapNear,
    Compacted,
    ContextPart,
    ContextTold,
    CostChosen,
    Event,
    GraphPlanned,
    HookRan,
    LimitChosen,
    NodeChanged,
    PlanChanged,
    PlanRow,
    PlanScored,
    PlanWritten,
    Quote,
    QuoteChosen,
    Reasoned,
    ResultsTrimmed,
    SandboxBlocked,
    Status,
    SubagentFinished,
    SubagentStarted,
    TodoChanged,
    TodoItem,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnUndone,
)
from ecoshell.messages import Call, visible_line

ENDINGS: Mapping[Status, str] = {
    "answered": "answered",
    "limit": "limit reached",
    "gave_up": "gave up",
    "error": "error",
    "interrupted": "stopped",
}
"""Text for each end of a turn."""
_PARTS = {
    "user": "your AGENTS.md",
    "project": "AGENTS.md of this project",
    "facts": "facts of the workspace",
}
_STATES = {"untrusted": "not trusted", "unreadable": "cannot be read"}
_TRUSTS = {
    "yes": "is trusted until it changes",
    "no": "is not read until it changes",
    "later": "is not read now",
}

_CHOICES = {
    "raise": "the cap is raised",
    "model": "continuing with another model",
    "answer": "answering with the results so far",
    "stop": "stopping",
}
_COST_CHOICES = {
    **_CHOICES,
    "go": "continuing",
    "always": "continuing without asking again in this session",
}

_MARKS = {True: "marked helpful", False: "marked unhelpful", None: "mark removed"}
_NODE_ENDINGS = frozenset({"failed", "denied", "skipped", "stopped"})
"""States of a node that are reported."""

CALL_BEGINS = ("{", "```", '["', "[SoP]")
"""Beginnings of a call or a tool graph that a model writes as text; shown when complete, not while it streams."""
_COMMAND_LENGTH = 80
"""Characters of a background command in a line."""
MAX_RESULT_CHARS = 200
"""Characters of an observation in a line."""
_NODES = {"graph": "node", "tasks": "subagent", "plan": "part"}
_GROUP_SIZE = 3
"""From this number on, tools without history share a line."""
_RELEVANT_CHANCE = 0.2
"""Chance of use from which a plan shows a new tool on a separate line."""
_NAME_LIMIT = 3
"""Tools named in a line; more are counted."""

FormatAmount = Callable[[int, Unit], str]
"""Formats an amount of a unit."""


def describe(event: Event) -> str:
    """An event as one line; empty if it is not shown, or if interfaces show it in another form."""
    words = _WORDS.get(type(event))
    return words(event) if words else ""


def back_to(event: BranchLeft) -> str:
    """Where a search continues: `back to step 2`."""
    return f"back to step {len(event.path)}" if event.path else "back to the beginning"


def refusal(refused: str) -> str:
    """Why a call was not run, by its guard: `denied`, `not run: the turn was stopped`."""
    texts = {
        "unapproved": "denied",
        "stopped": "not run: the turn was stopped",
        "hook": "blocked by a hook",
    }
    return texts.get(refused) or f"refused: {visible_line(refused)}"


def _hook_text(event: HookRan) -> str:
    """A hook that failed; empty for any other, and for one that blocked a call, whose result gives the reason."""
    if event.status == 0 or event.blocked:
        return ""
    outcome = (
        "was stopped or not started"
        if event.status is None
        else f"ended with exit status {event.status}"
    )
    words = visible_line(event.text, MAX_RESULT_CHARS)
    return f"the hook {visible_line(event.name)} ({event.event}) {outcome}{f': {words}' if words else ''}"


def why_words(why: str) -> str:
    """The reason of a plan row."""
    return "low past success" if why == "below τ" else why


def context_line(event: ContextTold) -> str:
    """The parts of the workspace context: `your AGENTS.md (120 tokens), facts of the workspace (92 tokens)`."""
    return ", ".join(
        f"{_PARTS[part.name]} ({part_size(part, event, ' tokens')})" for part in event.parts
    )


def part_size(part: ContextPart, event: ContextTold, unit: str) -> str:
    """The size of a part, or why it is not sent."""
    if part.state != "told":
        return _STATES[part.state]
    return f"{'' if event.exact else '≈ '}{part.tokens:,}{unit}{', cut' if part.cut else ''}"


def overrun_text(model: str, amount: str) -> str:
    """The warning about a model that charged more than was reserved, by an amount of money or tokens."""
    return (
        f"{visible_line(model)} billed {amount} more than the prompt and max_tokens allow, and than was reserved; "
        "the overrun is recorded, and the model is not called under a cap from now on."
    )


def length_text(text: str) -> str:
    """The tokens of a text, estimated at four bytes each."""
    return about(counted(-(-len(text.encode("utf-8", "replace")) // 4), "token"), estimated=True)


def _settled(event: BudgetSettled) -> str:
    """What is unusual about a settlement: an overrun, or missing usage with its estimate and what counts instead."""
    if event.overrun_nano:
        return overrun_text(event.model, amount_text(event.overrun_nano, "usd"))
    if event.reported:
        return ""
    reservation = (
        amount_text(event.spent_nano, "usd")
        if event.spent_nano
        else amount_text(event.usage.total, "tokens")
    )
    reason = event.why or "no usage was reported"
    likely = ""
    if event.estimate is not None:
        price = (
            "" if event.estimate_nano is None else f", ≈ {amount_text(event.estimate_nano, 'usd')}"
        )
        likely = f": ≈ {event.estimate.input:,} tokens in and {event.estimate.output:,} out by a tokenizer{price}"
    return (
        f"{reason[:1].upper()}{reason[1:]}, so its cost is unknown{likely}. Under a cap the whole reservation "
        f"({reservation}) counts until you correct it with `ecoshell cost --reconcile {event.entry}=AMOUNT`."
    )


def duration(seconds: float) -> str:
    """A duration: `12 ms`, `2.1 s`, `3 min 20 s`."""
    if seconds < 0.9995:  # 999.5 ms would round to 1000 ms
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    seconds = max(seconds, 60)
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def turn_sums(event: TurnFinished) -> list[str]:
    """The totals of a turn: `$0.0031`, `3 steps`, `2.1 s`."""
    total = event.consumption
    cost = "cost unknown" if total.nano is None else amount_text(total.nano, "usd")
    return [
        about(cost, estimated=total.estimated_nano),
        counted(event.steps, "step"),
        duration(event.seconds),
    ]


def registration_words(event: ToolRegistered) -> str:
    """`registered`, and by whom or why if not by the agent."""
    words = {"user": "registered by you", "upfront": "registered for this question"}.get(
        event.by, "registered"
    )
    return f"skill {words}" if event.text else words


def registration_sizes(event: ToolRegistered) -> str:
    """The tokens of a registered tool's schema, and how many tools are loaded: `112 tokens · 7 of 31 loaded`."""
    size = f"{'' if event.exact else 'about '}{counted(event.tokens, 'token')}"
    return f"{size} · {event.loaded} of {event.total} loaded" if event.loaded else size


def _offered(event: ToolsOffered) -> str:
    sizes = f"{event.context_tokens:,} of {counted(event.everything_tokens, 'token')}"
    text = f"{loaded_share(event)}, {'' if event.exact else 'about '}{sizes}"
    return (
        f"{text}; from the start: {visible_line(', '.join(event.upfront))}"
        if event.upfront
        else text
    )


def loaded_share(event: ToolsOffered) -> str:
    """How many tools are loaded and how many are known by name: `6 tools loaded, 19 known by name`."""
    loaded = len(event.loaded or event.upfront)  # sessions of old versions list only the new ones
    known = len(event.names) - sum(name in event.names for name in event.loaded or event.upfront)
    skills = f", {counted(len(event.skills), 'skill')}" if event.skills else ""
    return f"{counted(loaded, 'tool')} loaded{f', {known} known by name' if known else ''}{skills}"


def _result(event: CallFinished) -> str:
    """An observation: its status, first line, number of further lines, duration and price."""
    lines = event.observation.strip().splitlines() or ["(nothing)"]
    first = visible_line(lines[0])
    text = first if len(first) <= MAX_RESULT_CHARS else first[:MAX_RESULT_CHARS] + "…"
    if len(lines) > 1:
        text += f" (and {counted(len(lines) - 1, 'more line')})"
    if event.truncated:
        text += " (truncated)"
    if event.refused:
        return f"{refusal(event.refused)}: {text}"
    cost = f"  {amount_text(event.spent_nano, 'usd')}" if event.spent_nano else ""
    return f"{'result' if event.ok else 'failed'}: {text}  {duration(event.seconds)}{cost}"


def _undone(event: TurnUndone) -> str:
    parts = [f"turn {event.turn} was undone"]
    parts += [f"restored {visible_line(', '.join(event.restored))}"] if event.restored else []
    parts += [f"not restored {visible_line(', '.join(event.kept))}"] if event.kept else []
    return "; ".join(parts)


# -- plans and tool graphs


def plan_news(
    previous: PlanChanged | None, plan: PlanChanged, format_amount: FormatAmount = amount_text
) -> str:
    """A turn's first plan, or what a later plan newly forbids; empty if nothing.

    `plan: 3 of 13 tools, about $0.002 to $0.011; no cap: advice only`
    """
    if plan.number > 1:
        return "" if previous is None or not plan.enforced else _newly_forbidden(previous, plan)
    tools = "tool" if len(plan.rows) + plan.others == 1 else "tools"
    binding = (
        ""
        if plan.enforced
        else "; no cap: advice only"
        if plan.cap is None
        else "; nothing is blocked"
    )
    return f"plan: {planned_share(plan)} {tools}, {price_range(plan, format_amount)}{binding}"


def _newly_forbidden(previous: PlanChanged, plan: PlanChanged) -> str:
    forbidden = (
        {row.tool for row in previous.rows if row.state == "forbidden"}
        if previous.enforced
        else set[str]()
    )
    rows = [row for row in plan.rows if row.state == "forbidden" and row.tool not in forbidden]
    if rows and not plan.others and all(row.state != "planned" for row in plan.rows):
        reasons = ", ".join(dict.fromkeys(why_words(row.why) for row in rows))
        return f"plan: no tool may be used now ({reasons})"
    names = [f"{visible_line(row.tool)} ({why_words(row.why)})" for row in rows[:_NAME_LIMIT]]
    if len(rows) > _NAME_LIMIT:
        names.append(f"{len(rows) - _NAME_LIMIT:,} more")
    text = " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
    return text and f"plan: {text} may no longer be used"


def planned_share(plan: PlanChanged) -> str:
    """The number of planned tools: `3 of 13`; `60+ of 527` if there are more than the event's rows."""
    planned = sum(row.state == "planned" for row in plan.rows)
    more = "+" if plan.others and plan.rows and plan.rows[-1].state == "planned" else ""
    return f"{planned:,}{more} of {len(plan.rows) + plan.others:,}"


def price_range(plan: PlanChanged, format_amount: FormatAmount = amount_text) -> str:
    """The estimated cost of the turn from here: `about $0.002 to $0.011`, `$0`, `price unknown`, `time unknown`."""
    if plan.low is None or plan.high is None:
        return "time unknown" if plan.unit == "ms" else "price unknown"
    low, high = format_amount(plan.low, plan.unit), format_amount(plan.high, plan.unit)
    if not plan.high:
        return high
    return f"about {low}" if low == high else f"about {low} to {high}"


def untried(rows: Sequence[PlanRow]) -> list[str]:
    """The tools without history that the question hardly concerns, if there are enough of them to share a line."""
    new = [
        row.tool
        for row in rows
        if row.why == "new"
        and not row.used
        and row.state == "planned"
        and row.chance < _RELEVANT_CHANCE
    ]
    return new if len(new) >= _GROUP_SIZE else []


def _graph(plan: GraphPlanned) -> str:
    """Nodes, edges and estimates of a tool graph: `a, b, a + b → c · tools about $0.002`."""
    label = "plan, repaired: " if plan.repaired else "plan: "
    labels = {node.label for node in plan.nodes}
    nodes: list[str] = []
    for node in plan.nodes:
        name = visible_line(node.label) + (" (done)" if node.label in plan.kept else "")
        inputs = [visible_line(label) for label in node.after if label in labels]
        nodes.append(f"{' + '.join(inputs)} → {name}" if inputs else name)
    return f"{label}{', '.join(nodes)} · {estimate(plan)}"


def estimate(plan: GraphPlanned) -> str:
    """The expected price of the tools and duration of the longest path: `tools about $0.002, 1.3 s`."""
    price = "price unknown" if plan.price_nano is None else amount_text(plan.price_nano, "usd")
    time = "time unknown" if plan.seconds is None else f"{plan.seconds:.1f} s"
    return f"tools about {price}, {time}"


def _scored(event: PlanScored) -> str:
    """The score of a tool graph: `plan of turn 3: QoP 0.31: P 0.67 by rules, C $0.0021 of $0.05`."""
    quality = "unknown" if event.quality is None else f"{event.quality:.2f}"
    performance = "unknown"
    if event.performance is not None:
        performance = f"{event.performance:.2f} by {visible_line(event.judged_by)}"
    cost = "unknown"
    if event.resources_nano is None:
        cost = "unknown (not every run was measured)"
    elif event.cost_nano is not None:
        resources = amount_text(event.resources_nano, "usd")
        part = f" ({resources} of it time and memory)" if event.resources_nano else ""
        cost = f"{amount_text(event.cost_nano, 'usd')}{part if event.cost_nano else ' (nothing was paid)'}"
    limit = amount_text(event.most_nano, "usd")
    return f"plan of turn {event.turn}: QoP {quality}: P {performance}, C {cost} of {limit}"


def compacted_text(event: Compacted) -> str:
    """What a summary replaces, who wrote it, its price if known, and the tokens before and after."""
    replaced = (
        counted(event.turns, "turn") if event.turns else counted(len(event.calls), "earlier call")
    )
    by = (
        f"summarized by {visible_line(event.model)}"
        if event.model
        else "replaced by an extract that no model wrote"
    )
    price = (
        f" for {amount_text(event.spent_nano, 'usd')}"
        if event.model and event.spent_nano is not None
        else ""
    )
    return f"{replaced} {by}{price}: {event.tokens_before:,} tokens became {event.tokens_after:,}"


def subagent_start(event: SubagentStarted) -> str:
    """The model and the share of a subagent: `openai/gpt-5-mini · at most $0.05`."""
    share = f" · at most {event.share}" if event.share else ""
    return f"{visible_line(event.model)}{share}"


def subagent_end(event: SubagentFinished) -> str:
    """How a subagent ended, and what it used of its share: `answered · $0.0031 of $0.05 · 4.1 s`."""
    share = f" of {event.share}" if event.share else ""
    return f"{ENDINGS[event.status]} · {event.spent}{share} · {duration(event.seconds)}"


def near_cap(event: CapNear) -> str:
    """The used and the remaining part of a cap."""
    limit, left = (
        amount_text(value, event.unit) for value in (event.limit, max(0, event.limit - event.spent))
    )
    percent = 100 * event.spent // event.limit
    return f"{percent} % of the {visible_line(event.scope)}'s cap of {limit} is used: {left} left"


def trimmed_text(event: ResultsTrimmed) -> str:
    """How many results were trimmed, and the tokens before and after."""
    results = counted(len(event.results), "large result")
    return f"{results} trimmed to make room: {event.tokens_before:,} tokens became {event.tokens_after:,}"


def todo_headline(items: Sequence[TodoItem]) -> str:
    """How much of the task list is done, and what is in progress: `tasks: 1 of 3 done · write the test`."""
    now = [visible_line(item.text) for item in items if item.state == "in_progress"]
    return " · ".join(
        (f"tasks: {sum(item.state == 'done' for item in items)} of {len(items)} done", *now)
    )


def quote_text(event: Quote) -> str:
    """Price and time of a quote with their bounds: `$0.01 to $0.04, 12 s to 40 s`."""
    price = span_text(event.low_usd, event.high_usd, usd_text)
    time = span_text(event.low_seconds, event.high_seconds, duration)
    return (
        f"{'price unknown' if price is None else price}, {'time unknown' if time is None else time}"
    )


def usd_text(amount: float) -> str:
    """An estimated price in dollars."""
    return amount_text(rounded_up(round(amount * NANO)), "usd") if amount > 0 else "free"


def span_text(low: float | None, high: float | None, text: Callable[[float], str]) -> str | None:
    """Two bounds as text; None if they are unknown."""
    if low is None or high is None:
        return None
    return text(high) if text(low) == text(high) else f"{text(low)} to {text(high)}"


def _quoted(event: Quote) -> str:
    basis = "from experience" if event.samples else "estimated, without experience"
    reason = f"; {visible_line(event.reason)}" if event.reason else ""
    return f"quote for {counted(event.nodes, _NODES[event.kind])}: {quote_text(event)} ({basis}){reason}"


def bill_text(event: Bill) -> str:
    """A bill with its quote: `bill: $0.02 (quoted $0.01 to $0.04), 31 s (quoted 12 s to 40 s)`."""
    price = "cost unknown" if event.spent_usd is None else usd_text(float(event.spent_usd))
    price_span = span_text(event.low_usd, event.high_usd, usd_text)
    time_span = span_text(event.low_seconds, event.high_seconds, duration)
    parts = ((price, price_span), (duration(event.seconds), time_span))
    return "bill: " + ", ".join(
        text if span is None else f"{text} (quoted {span})" for text, span in parts
    )


def _quote_chosen(event: QuoteChosen) -> str:
    if event.choice == "refuse":
        return (
            "not started: the expected price does not fit" if event.by == "cap" else "not started"
        )
    return f"left out: {visible_line(', '.join(event.without))}" if event.choice == "trim" else ""


def _advised(event: AdvisorReplied) -> str:
    price = "an unknown price" if event.spent_usd is None else usd_text(float(event.spent_usd))
    why = ", because the last calls gave no result" if event.automatic else ""
    return f"advice from {visible_line(event.model)} for {price}{why}: {visible_line(event.advice, MAX_RESULT_CHARS)}"


def _followed(event: AdviceFollowed) -> str:
    before, call = (
        visible_line(text, MAX_RESULT_CHARS // 2) for text in (event.before, event.call)
    )
    return f"after the advice: {'the same call again' if before == call else f'{call} instead of {before}'}"


def _because(text: str, reason: str) -> str:
    return f"{text}: {visible_line(reason)}" if reason else text


def _background_ended(event: BackgroundEnded) -> str:
    """How a background command ended: `background b1 ended after 12 s (exit status 0): make`."""
    ending = "was stopped" if event.status is None else "ended"
    status = "" if event.status is None else f" (exit status {event.status})"
    command = visible_line(event.command, _COMMAND_LENGTH)
    return f"background {event.id} {ending} after {event.seconds:.0f} s{status}: {command}"


def _blocked(event: SandboxBlocked) -> str:
    """What a program lacked in the sandbox, and whether the user allowed it."""
    lacked = {"network": "no network", "outside": "no files outside the workspace"}.get(
        event.lacked, event.lacked
    )
    ending = "the user allowed it" if event.allowed else "not allowed"
    return f"sandbox: {visible_line(event.name)} had {lacked}; {ending}"


_WORDS: Mapping[type[Event], Callable[[Any], str]] = {
    BackgroundStarted: lambda event: (
        f"background {event.id} started: {visible_line(event.command, _COMMAND_LENGTH)}"
    ),
    BackgroundEnded: _background_ended,
    BranchLeft: lambda event: f"{back_to(event)}: {visible_line(event.reason)}",
    BudgetSettled: _settled,
    CallFinished: _result,
    HookRan: _hook_text,
    CallJudged: lambda event: _because("unhelpful", event.reason) if event.helpful is False else "",
    CallMarked: lambda event: (
        f"{_MARKS[event.helpful]}: {visible_line(event.name)} of turn {event.turn}"
    ),
    CallProgressed: lambda event: visible_line(event.text),
    CapNear: near_cap,
    CallStarted: lambda event: (
        f"call {visible_line(Call(event.name, event.arguments).signature())}"
    ),
    Compacted: compacted_text,
    # Only a panel shows context that consists of facts.
    ContextTold: lambda event: (
        f"context: {context_line(event)}"
        if any(part.name != "facts" for part in event.parts)
        else ""
    ),
    CostChosen: lambda event: str(_COST_CHOICES.get(event.choice, event.choice)),
    LimitChosen: lambda event: str(_CHOICES.get(event.choice, event.choice)),
    GraphPlanned: _graph,
    NodeChanged: lambda event: (
        _because(f"{visible_line(event.label)} {event.state}", event.reason)
        if event.state in _NODE_ENDINGS
        else ""
    ),
    PlanChanged: lambda event: plan_news(None, event),
    PlanScored: _scored,
    ResultsTrimmed: trimmed_text,
    Reasoned: lambda event: (
        f"thought for {length_text(event.text) if event.tokens is None else counted(event.tokens, 'token')}"
    ),
    SubagentStarted: lambda event: f"{visible_line(event.name)} started · {subagent_start(event)}",
    SubagentFinished: lambda event: (
        f"{visible_line(event.name)} {subagent_end(event)} · session {event.session}"
    ),
    SandboxBlocked: _blocked,
    # The offer already names tools that are loaded from the start.
    ToolRegistered: lambda event: (
        ""
        if event.by == "upfront"
        else f"{visible_line(event.name)} {registration_words(event)} · {registration_sizes(event)}"
    ),
    AdviceFollowed: _followed,
    AdvisorReplied: _advised,
    Bill: bill_text,
    PlanWritten: lambda event: (
        f"plan of {counted(event.steps, 'step')}; /plan accept carries it out"
    ),
    Quote: _quoted,
    QuoteChosen: _quote_chosen,
    TodoChanged: lambda event: todo_headline(event.items),
    ToolsOffered: _offered,
    ToolUnregistered: lambda event: f"unregistered {visible_line(event.name)}",
    TrustGiven: lambda event: (
        f"{visible_line(event.file)} of this project {_TRUSTS[event.decision]}"
        if event.by == "person"
        else ""
    ),
    TurnUndone: _undone,
}
