"""Emulated providers for real agents: they accept every field, let the agent run one command, and then answer."""

import json
from collections.abc import Mapping
from typing import Any

from providers import (
    AnthropicMessages,
    Emulator,
    OpenAIChat,
    OpenAIResponses,
    Prompt,
    Reply,
    Text,
    ToolCall,
)
from providers.server import Body

ANSWER = "The file is written."
COMMAND = "echo done > done.txt"
SHELLS: Mapping[str, Body] = {
    "Bash": {"command": COMMAND, "description": "Write a file"},
    "bash": {"command": COMMAND, "description": "Write a file"},
    "exec_command": {"cmd": COMMAND},
    "shell": {"command": ["bash", "-c", COMMAND]},
    "shell_command": {"command": COMMAND},
}
"""Names of the agents' tools that run commands, and the arguments of the call."""
INPUT_TOKENS = 100


class _Lenient(Emulator):
    """Reads a request without any check."""

    def read(self, path: str, body: Body) -> Prompt:
        tools: list[Body] = body.get("tools") or []
        names = tuple(
            str(tool.get("name") or (tool.get("function") or {}).get("name")) for tool in tools
        )
        limits = (
            body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
        )
        return Prompt(
            number=self.next_number,
            body=body,
            model=body["model"],
            tools=names,
            messages=(),
            max_output_tokens=next((limit for limit in limits if limit), 10_000),
            is_reasoning=False,
        )


class LenientMessages(_Lenient, AnthropicMessages):
    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        return {"input_tokens": INPUT_TOKENS, "output_tokens": 10}


class LenientChat(_Lenient, OpenAIChat):
    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        return {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": 10,
            "total_tokens": INPUT_TOKENS + 10,
        }


class LenientResponses(_Lenient, OpenAIResponses):
    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        return {
            "input_tokens": INPUT_TOKENS,
            "output_tokens": 10,
            "total_tokens": INPUT_TOKENS + 10,
        }


def one_command(prompt: Prompt) -> Reply:
    """Call the agent's shell until its result is in the prompt, then answer."""
    shell = next((name for name in SHELLS if name in prompt.tools), None)
    if shell is None or _has_result(prompt.body):
        return Reply((Text(ANSWER),))
    return Reply((ToolCall(shell, SHELLS[shell]),))


def _has_result(body: Body) -> bool:
    messages: list[Any] = body.get("messages") or body.get("input") or []
    kinds = ('"tool_result"', '"role": "tool"', '"function_call_output"')
    return any(kind in json.dumps(messages) for kind in kinds)
