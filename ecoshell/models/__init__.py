"""Models by name: local, remote and scripted ones behind one interface."""

from ecoshell.models.interface import (
    CAPABLE_PARAMETERS,
    Delta,
    Model,
    PromptSize,
    Purpose,
    Reply,
    Request,
    Traits,
)
from ecoshell.models.model_rows import HERE, Kind, ModelRow, StartingModel, size_text
from ecoshell.models.prompt_bound import (
    PER_MESSAGE,
    PER_PROMPT,
    PER_TOOL,
    PER_TOOL_ARRAY,
    PER_TOOL_SEARCH,
    estimate,
    json_bound,
    request_bound,
    shown_id,
    state_bound,
    text_bound,
)

__all__ = [
    "CAPABLE_PARAMETERS",
    "HERE",
    "PER_MESSAGE",
    "PER_PROMPT",
    "PER_TOOL",
    "PER_TOOL_ARRAY",
    "PER_TOOL_SEARCH",
    "Delta",
    "Kind",
    "Model",
    "ModelRow",
    "PromptSize",
    "Purpose",
    "Reply",
    "Request",
    "StartingModel",
    "Traits",
    "estimate",
    "json_bound",
    "request_bound",
    "shown_id",
    "size_text",
    "state_bound",
    "text_bound",
]
