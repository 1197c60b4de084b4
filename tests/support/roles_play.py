"""Events of turns with three roles: one model, three models, one model with adapters."""

from dataclasses import replace

from side_play import READY

from ecoshell.events import (
    Answer,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Event,
    Rationale,
    StepStarted,
    TextArrived,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage

LARGE, FILE = "openai/gpt-4.1-mini", "local:/home/me/models/qwen2.5-1.5b-instruct-q4.gguf"
ADAPTED = "embedded+/home/me/adapters/planner.gguf"
ALONE = (("planner", "embedded"), ("caller", "embedded"), ("summarizer", "embedded"))
MIXED = (("planner", LARGE), ("caller", FILE), ("summarizer", "embedded"))
WITH_ADAPTERS = (
    ("planner", ADAPTED),
    ("caller", f"{FILE}+caller.gguf"),
    ("summarizer", "embedded"),
)
IDLE = replace(READY, mode="umi", players=ALONE)
QUESTION = "how many words are in notes.txt?"
ONE_MORE = 10_000_000


def trio(
    players: tuple[tuple[str, str], ...] = MIXED, *, priced: int = ONE_MORE, turn: int = 1
) -> tuple[Event, ...]:
    """A turn with one call and an answer; `priced` is the price of the planner's first step in nano-dollars."""
    (_, planner), (_, caller), (_, summarizer) = players
    prices = (priced, priced // 10, priced // 4, priced // 5)
    steps = (
        ("planner", planner),
        ("caller", caller),
        ("planner", planner),
        ("summarizer", summarizer),
    )
    used = (
        Usage(2_100, 40),
        Usage(2_200, 24, cached=2_048),
        Usage(2_300, 18, cached=2_112),
        Usage(1_400, 60),
    )
    seconds = (2.1, 0.4, 1.2, 0.9)
    calls = [
        (
            BudgetHeld(10 * turn + at, *step, 5 * price, usage.input + 512, 512, clamped=False),
            BudgetSettled(10 * turn + at, *step, price, usage, True, time),
        )
        for at, (step, price, usage, time) in enumerate(
            zip(steps, prices, used, seconds, strict=True)
        )
    ]
    answer = "notes.txt has **1,204** words."
    return (
        TurnStarted(turn, QUESTION, planner, "umi", "react"),
        StepStarted(1, "planner", planner),
        calls[0][0],
        TextArrived("I need a word counter. Next: caller.", "thought", "planner"),
        calls[0][1],
        calls[1][0],
        TextArrived('{"name": "count_text"}', "thought", "caller"),
        calls[1][1],
        Rationale("I need a word counter.", "planner"),
        CallStarted("c1", "count_text", {"path": "notes.txt"}, role="caller"),
        CallFinished("c1", "count_text", True, "1,204 words", False, 0.012),
        StepStarted(2, "planner", planner),
        *calls[2],
        Rationale("That is all that was asked.", "planner"),
        calls[3][0],
        TextArrived(answer, "answer", "summarizer"),
        calls[3][1],
        Answer(answer, role="summarizer"),
        TurnFinished(
            turn, "answered", answer, sum(prices), Usage(8_000, 142), 2, ("count_text",), 4.6, 4_200
        ),
    )


PLANNER_THINKS, CALLER_THINKS, CALLED, SUMMARIZER_WRITES = 3, 6, 11, 16
"""Number of events of the turn until each role runs and until the tool was called."""
