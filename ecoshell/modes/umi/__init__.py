"""The umi mode (α-UMi §3.1): planner, caller and summarizer."""

from ecoshell.modes.umi.decision import ENDINGS, Decision, decision, own_decision
from ecoshell.modes.umi.dialogue import action_in, action_text, lines
from ecoshell.modes.umi.mode import Umi

__all__ = [
    "ENDINGS",
    "Decision",
    "Umi",
    "action_in",
    "action_text",
    "decision",
    "lines",
    "own_decision",
]
