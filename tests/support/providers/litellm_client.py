"""A process that asks through real litellm: one JSON object per line in and out.

In: the arguments of `acompletion`. Out: `{"message", "finish", "usage"}`, where the message has every field that must
be sent back, or `{"error": {type, status, message, retry_after}}`.
"""

import asyncio
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Self

_TIME_LIMIT = 120
"""Seconds for one answer, so that a hanging test ends."""


class LitellmClient:
    """Starts the process, and asks it."""

    def __init__(self) -> None:
        support = Path(__file__).parent.parent
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "providers.litellm_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def ask(self, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate()


async def _answer(arguments: dict[str, Any]) -> dict[str, Any]:
    litellm: Any = import_module("litellm")
    litellm.suppress_debug_info = True  # or it prints to standard output
    always = {"stream": True, "stream_options": {"include_usage": True}, "api_key": "key"}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    finish, usage = None, None
    try:
        stream = await litellm.acompletion(
            **always, num_retries=0, max_retries=0, drop_params=True, **arguments
        )
        async for chunk in stream:
            usage = chunk.model_dump().get("usage") or usage
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                _add(message, choice.delta)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the result
        headers: Any = getattr(error, "litellm_response_headers", None) or {}
        return {
            "error": {
                "type": type(error).__name__,
                "status": _status(error),
                "message": str(error),
                "retry_after": headers.get("retry-after"),
            }
        }
    return {"message": message, "finish": finish, "usage": usage}


def _status(error: BaseException | None) -> int | None:
    """The status that the provider sent; litellm changes some."""
    import httpx

    while error is not None:
        if isinstance(error, httpx.HTTPStatusError):
            return error.response.status_code
        error = error.__cause__ or error.__context__
    return None


def _add(message: dict[str, Any], delta: Any) -> None:
    """Add one delta to the message, with all fields that the provider wants back."""
    if delta.content:
        message["content"] = (message["content"] or "") + delta.content
    if reasoning := getattr(delta, "reasoning_content", None):
        message["reasoning_content"] = message.get("reasoning_content", "") + reasoning
    for block in getattr(delta, "thinking_blocks", None) or ():
        blocks: list[dict[str, Any]] = message.setdefault("thinking_blocks", [])
        if block["type"] == "redacted_thinking":
            blocks.append({"type": "redacted_thinking", "data": block["data"]})
            continue
        if not blocks or blocks[-1].get("signature") or blocks[-1]["type"] != "thinking":
            blocks.append({"type": "thinking", "thinking": ""})
        blocks[-1]["thinking"] += block.get("thinking") or ""
        if signature := block.get("signature"):
            blocks[-1]["signature"] = signature
    if items := getattr(delta, "reasoning_items", None):
        message["reasoning_items"] = items
    if fields := getattr(delta, "provider_specific_fields", None):
        opaque = {name: value for name, value in fields.items() if name != "thinking_blocks"}
        message.setdefault("provider_specific_fields", {}).update(opaque)
    for part in delta.tool_calls or ():
        calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
        if part.id:
            call = {
                "id": part.id,
                "type": "function",
                "function": {"name": part.function.name, "arguments": ""},
            }
            calls.append(call)
            if fields := getattr(part, "provider_specific_fields", None):
                call["provider_specific_fields"] = fields
        calls[-1]["function"]["arguments"] += part.function.arguments or ""


async def _serve() -> None:
    import_module("litellm")  # may take minutes on a busy machine, before the first answer
    for line in sys.stdin:
        answer = await asyncio.wait_for(_answer(json.loads(line)), _TIME_LIMIT)
        sys.stdout.write(json.dumps(answer, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    asyncio.run(_serve())
