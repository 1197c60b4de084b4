"""Models by name: local, remote and scripted ones behind one interface."""

from ecoshell.models.interface import (
    ArrivingCall,
    Delta,
    Model,
    PromptSize,
    Purpose,
    Reply,
    Request,
    Traits,
)
from ecoshell.models.model_rows import HERE, ModelRow, StartingModel, size_text
from ecoshell.models.prompt_bound import (
    PER_PROMPT,
    PER_TOOL_ARRAY,
    estimate,
    request_bound,
    text_bound,
)

__all__ = [
    "HERE",
    "PER_PROMPT",
    "PER_TOOL_ARRAY",
    "ArrivingCall",
    "Delta",
    "Model",
    "ModelRow",
    "PromptSize",
    "Purpose",
    "Reply",
    "Request",
    "StartingModel",
    "Traits",
    "estimate",
    "request_bound",
    "size_text",
    "text_bound",
]
