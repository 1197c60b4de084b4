"""Known and registered tools, how a model sees them, and which ones a turn begins with."""

from ecoshell.catalog.catalog import Catalog, CatalogChanges
from ecoshell.catalog.decision import SMALL_SET_SHARE, LoadingDecision, decide_loading
from ecoshell.catalog.forecast import (
    FAILURE_RATE,
    SMALL_SET_TOKENS,
    TOKEN_WEIGHTS,
    Candidate,
    LoadingPolicy,
    Workload,
    candidates_of,
    rates_of,
    sized_for,
)
from ecoshell.catalog.presentation import (
    CORE,
    DEFERRED,
    FINISH_SCHEMA,
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    Presentation,
    few_words,
    listed_parts,
    presentation_of,
)
from ecoshell.catalog.skills import Skill, SkillLibrary

__all__ = [
    "CORE",
    "DEFERRED",
    "FAILURE_RATE",
    "FINISH_SCHEMA",
    "GROW",
    "PLAIN",
    "SMALL_SET_SHARE",
    "SMALL_SET_TOKENS",
    "STABLE",
    "TEXT",
    "TOKEN_WEIGHTS",
    "Candidate",
    "Catalog",
    "CatalogChanges",
    "LoadingDecision",
    "LoadingPolicy",
    "Presentation",
    "Skill",
    "SkillLibrary",
    "Workload",
    "candidates_of",
    "decide_loading",
    "few_words",
    "listed_parts",
    "presentation_of",
    "rates_of",
    "sized_for",
]
