"""The roles in which models think: one for all of it, or planner, caller and summarizer (α-UMi §3.1)."""

from dataclasses import dataclass

SINGLE = "single"
PLANNER = "planner"
CALLER = "caller"
SUMMARIZER = "summarizer"


@dataclass(frozen=True, slots=True)
class Roles:
    """Who is said to do what; the ledger and the events name it."""

    planning: str = SINGLE
    calling: str = SINGLE
    answering: str = SINGLE


ONE_FOR_ALL = Roles()
THREE = Roles(PLANNER, CALLER, SUMMARIZER)
