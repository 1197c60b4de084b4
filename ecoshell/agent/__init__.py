"""The agent: a turn from question to answer, its guards, and the session around it."""

from ecoshell.agent.user_interface import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    NonInteractive,
    QuoteChoice,
    Trust,
    UserInterface,
    enough_text,
    parse_arguments,
)

__all__ = [
    "Approval",
    "CostChoice",
    "Decision",
    "LimitChoice",
    "NonInteractive",
    "QuoteChoice",
    "Trust",
    "UserInterface",
    "enough_text",
    "parse_arguments",
]
