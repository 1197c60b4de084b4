"""Emulators of model providers on loopback that reject what the real services reject."""

from providers.anthropic_messages import AnthropicMessages
from providers.gemini_content import GeminiContent
from providers.openai_chat import OpenAIChat
from providers.openai_responses import OpenAIResponses
from providers.script import (
    Answer,
    Failure,
    Prompt,
    PromptMessage,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolSearch,
    Unknown,
)
from providers.server import Emulator, Model

__all__ = [
    "Answer",
    "AnthropicMessages",
    "Emulator",
    "Failure",
    "GeminiContent",
    "Model",
    "OpenAIChat",
    "OpenAIResponses",
    "Prompt",
    "PromptMessage",
    "Reasoning",
    "Reply",
    "Text",
    "ToolCall",
    "ToolSearch",
    "Unknown",
]
