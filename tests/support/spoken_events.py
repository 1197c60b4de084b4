"""Events that every interface shows in the same words, with hostile characters in their texts."""

from plan_play import PLANNED

from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    BackgroundEnded,
    BackgroundStarted,
    Bill,
    BranchLeft,
    BudgetSettled,
    CapNear,
    CommandRan,
    Compacted,
    ContextPart,
    ContextTold,
    CostChosen,
    ErrorHappened,
    Event,
    HookRan,
    LimitChosen,
    LimitHit,
    Notice,
    PlanScored,
    PlanWritten,
    Quote,
    QuoteChosen,
    ResultsTrimmed,
    SandboxBlocked,
    StepProposed,
    SubagentLimited,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrimmedResult,
    TrustGiven,
    TurnUndone,
)
from ecoshell.messages import Usage

_HOSTILE = "<b>*bold*</b> \x1b[2Jtext"

SPOKEN: tuple[tuple[Event, str], ...] = (
    (AdviceFollowed("ls()", "read_file()"), "after the advice: read_file() instead of ls()"),
    (
        AdvisorReplied("Which?", _HOSTILE, "gpt", "0.02"),
        "advice from gpt for $0.02 · <b>*bold*</b> ␛[2Jtext",
    ),
    (BackgroundStarted("b1", "make"), "background b1 started: make"),
    (
        BackgroundEnded("b1", "make", 2, 12.0),
        "background b1 ended after 12 s (exit status 2): make",
    ),
    (Bill("1", "graph", "0.02", 2.0), "bill: $0.02, 2.0 s"),
    (BranchLeft(("c1",), 2, _HOSTILE), "back to step 1 · <b>*bold*</b> ␛[2Jtext"),
    (BranchLeft((), 1, "x"), "back to the beginning · x"),
    (
        BudgetSettled(4, "single", "m", 7_100_000, Usage(), False, 1.0, why="the call was stopped"),
        "The call was stopped, so its cost is unknown. Under a cap the whole reservation ($0.0071) counts",
    ),
    (
        CapNear("session", "usd", 20_000_000, 17_000_000),
        "85 % of the session's cap of $0.02 is used: $0.003 left",
    ),
    (CommandRan("make test", "boom", False, True, 1.5), "make test"),
    (
        Compacted("Short.", "m", 2, 1_200, 100, spent_nano=10_000_000),
        "2 turns summarized by m for $0.01 · 1,200 tokens became 100",
    ),
    (
        Compacted(
            "All of it.", "gpt", 0, 1_400, 90, ("c1", "c2"), automatic=True, spent_nano=1_000
        ),
        "2 earlier calls summarized by gpt for $0.000001 · 1,400 tokens became 90",
    ),
    (
        ContextTold("…", (ContextPart("project", 1_340, cut=True),), exact=False, workspace="/p"),
        "context: AGENTS.md of this project (≈ 1,340 tokens, cut)",
    ),
    (CostChosen("go"), "continuing"),
    (ErrorHappened("X", _HOSTILE, "", ""), "<b>*bold*</b> ␛[2Jtext"),
    (
        HookRan("after_turn", _HOSTILE, "sh", 1, 0.1, blocked=False, text="no"),
        "the hook <b>*bold*</b> ␛[2Jtext (after_turn) ended with exit status 1 · no",
    ),
    (LimitChosen("answer"), "answering with the results so far"),
    (
        LimitHit("session", "usd", 5, 1, "The cap is too low."),
        "limit reached · The cap is too low.",
    ),
    (Notice(_HOSTILE), "<b>*bold*</b> ␛[2Jtext"),
    (PLANNED, "plan: 3 of 5 tools, about $0.002 to $0.011"),
    (
        PlanScored(1, 0.5, "rules", 2_000_000, 50_000_000, 0.5, 0.23),
        "plan of turn 1: QoP 0.23: P 0.50 by rules, C $0.002 of $0.05",
    ),
    (
        PlanScored(3, None, "", None, 50_000_000, 0.5, None, resources_nano=None),
        "QoP unknown: P unknown, C unknown (not every run was measured)",
    ),
    (PlanWritten("1. Read it.", 1), "plan of 1 step · /plan accept carries it out"),
    (
        Quote("1", "tasks", 2, 0.01, 0.02, 0.04, 5.0, 9.0, 40.0, reason="it is expensive"),
        "quote for 2 subagents: $0.01 to $0.04, 5.0 s to 40.0 s (estimated, without experience)"
        " · it is expensive",
    ),
    (QuoteChosen("1", "refuse", "cap"), "not started: the expected price does not fit"),
    (
        ResultsTrimmed((TrimmedResult(1, "c1"),), 1_200, 30_000, 12_000),
        "1 large result trimmed to make room · 30,000 tokens became 12,000",
    ),
    (
        SandboxBlocked("c1", "make", "network", allowed=False),
        "sandbox: make had no network; not allowed",
    ),
    (
        SubagentLimited("counter", "task", "usd", 5, 1, "The share is too low."),
        "counter: limit reached · The share is too low.",
    ),
    (StepProposed("Look around.", "list_files()", "m"), "proposed list_files() · Look around."),
    (StepProposed(" ", "answer", "m"), "proposed answer"),
    (
        ToolRegistered("count_text", 142, False, 1, "agent", loaded=7, total=31),
        "count_text registered · about 142 tokens · 7 of 31 loaded",
    ),
    (ToolUnregistered("count_text"), "count_text unregistered"),
    (
        ToolsOffered(("a", "b", "c"), ("a",), "grow", 1_942, 14_120, True, "cheaper"),
        "1 tool loaded, 2 known by name · 1,942 of 14,120 tokens · cheaper",
    ),
    (TrustGiven("yes", "person"), "AGENTS.md of this project is trusted until it changes"),
    (
        TrustGiven("no", "person"),
        "AGENTS.md of this project is not read; you are asked again when it changes, or use --trust-project",
    ),
    (
        TurnUndone(3, ("a.txt", "new.txt"), ("b.txt",), ("new.txt",)),
        "turn 3 was undone · restored a.txt · removed new.txt · not restored because of later changes: b.txt",
    ),
)
"""Each event with what all interfaces say about it."""
