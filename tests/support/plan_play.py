"""Plan events of a turn: first plans, updates, and every reason to forbid a tool."""

from dataclasses import replace

from ecoshell.events import (
    CallFinished,
    CallJudged,
    CallStarted,
    Event,
    PlanChanged,
    PlanRow,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage

COUNT = PlanRow("count_text", 0.91, 1_200_000, 300_000, 2, 2, 0, "planned", "value")
READ = PlanRow("read_file", 0.55, 800_000, 100_000, 1, 1, 0, "planned", "value")
LIST = PlanRow("list_folder", 0.1, 2_000_000, 0, 1, 1, 0, "planned", "new")
FETCH = PlanRow("fetch_url", 0.1, 31_000_000, 12_000_000, 1, 0, 0, "forbidden", "budget")
RUN = PlanRow("run_command", 0.08, 4_000_000, 1_000_000, 0, 0, 0, "unplanned", "below τ")
PLANNED = PlanChanged(
    mode="btp", reason="the question", number=1, rows=(COUNT, READ, LIST, FETCH, RUN), others=0, unit="usd",
    cap=50_000_000, reserved=7_100_000, budget=42_900_000, planned_cost=5_200_000, enforced=True, low=2_000_000,
    high=11_000_000, whole=50_000_000,
)  # fmt: skip
USED = replace(
    PLANNED, reason="count_text was used", number=2, rows=(replace(COUNT, used=1), READ, LIST, FETCH, RUN),
    cap=48_700_000, budget=41_600_000, planned_cost=4_000_000, low=1_000_000, high=9_000_000,
)  # fmt: skip
QUOTA = replace(
    USED, reason="count_text was used", number=3, cap=47_300_000, budget=40_200_000,
    rows=(replace(COUNT, used=2, state="forbidden", why="quota"), READ, LIST, FETCH, RUN),
)  # fmt: skip
BLACKLISTED = replace(
    QUOTA, reason="read_file was used", number=4, cap=46_000_000, budget=38_900_000, planned_cost=2_000_000,
    rows=(QUOTA.rows[0], replace(READ, used=1, state="forbidden", why="blacklist"), LIST, FETCH, RUN),
)  # fmt: skip
SPENT = replace(
    BLACKLISTED, reason="a step did not cost what was expected", number=5, cap=8_000_000, budget=900_000,
    planned_cost=0, rows=(*BLACKLISTED.rows[:2], replace(LIST, planned=0, state="forbidden", why="budget"), FETCH, RUN),
    low=700_000, high=700_000,
)  # fmt: skip
ADVICE = replace(
    QUOTA,
    cap=None,
    budget=None,
    reserved=0,
    enforced=False,
    number=1,
    reason="the question",
    whole=None,
)
PROMPT = replace(PLANNED, mode="prompt", enforced=False)
TOKEN_PLAN = replace(
    PLANNED, unit="tokens", cap=200_000, reserved=1_300, budget=198_700, planned_cost=5_450, low=900, high=6_100,
    whole=200_000,
    rows=tuple(replace(row, cost=row.cost // 1_000, spread=row.spread // 1_000) for row in PLANNED.rows),
)  # fmt: skip
COUNTED: tuple[Event, ...] = (
    CallStarted("c1", "count_text", {"path": "notes.txt"}),
    CallFinished("c1", "count_text", True, "1,204 words", False, 0.012),
)
HELPED = CallJudged("c1", "count_text", helpful=True, by="rules")
FAILED: tuple[Event, ...] = (
    CallStarted("c2", "read_file", {"path": "notes.txt"}),
    CallFinished("c2", "read_file", True, "", False, 0.003),
    CallJudged("c2", "read_file", helpful=False, by="rules", reason="an empty result"),
)
FOLLOWED: tuple[Event, ...] = (
    TurnStarted(1, "how many words are in notes.txt?", "embedded", "single", "react"),
    *(PLANNED, *COUNTED, HELPED, USED, *FAILED, BLACKLISTED),
    TurnFinished(1, "answered", "", 3_100_000, Usage(900, 60), 3, ("count_text",), 2.1, 4_200),
)
"""A turn from its first plan to a forbidden tool."""


def plan_of_many(count: int = 16_464) -> PlanChanged:
    """A plan over this many tools with sixty rows; some names are wide, hostile or very long."""
    odd = (
        "数える_言葉_とても長い名前の道具",
        "tool\x1b[31mred\u202e",
        "a_name_that_is_longer_than_any_panel_" * 3,
    )
    names = [*odd, *(f"service_{at % 37:02d}_operation_{at:03d}" for at in range(60 - len(odd)))]
    rows = tuple(
        PlanRow(
            name,
            round(0.9 - at / 100, 2),
            1_000_000 + at * 137_000,
            at * 40_000,
            1,
            1,
            0,
            "planned",
            "value",
        )
        for at, name in enumerate(names)
    )
    return replace(PLANNED, rows=rows, others=count - len(rows))
