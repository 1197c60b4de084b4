"""Known and registered tools, how a model sees them, and which ones a turn begins with."""

from ecoshell.catalog.catalog import Catalog, CatalogChanges, RegisteredTool, RegisteredTools
from ecoshell.catalog.loading_decision import (
    Candidate,
    LoadingDecision,
    LoadingPolicy,
    candidates_of,
    decide_loading,
    short_descriptions,
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
    listing_text,
    presentation_of,
)

__all__ = [
    "CORE",
    "DEFERRED",
    "FINISH_SCHEMA",
    "GROW",
    "PLAIN",
    "STABLE",
    "TEXT",
    "Candidate",
    "Catalog",
    "CatalogChanges",
    "LoadingDecision",
    "LoadingPolicy",
    "Presentation",
    "RegisteredTool",
    "RegisteredTools",
    "candidates_of",
    "decide_loading",
    "few_words",
    "listing_text",
    "presentation_of",
    "short_descriptions",
]
