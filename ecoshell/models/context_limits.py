"""The context size in a provider's error about a prompt that is too long."""

import re

_NUMBER = r"(\d[\d,_]*)"
_STATED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"
        rf">\s*{_NUMBER}\s*(?:tokens?\s*)?(?:maximum|$|[.,;)\"'])",
        # OpenAI, vLLM, Mistral: "maximum context length is 8192 tokens", "maximum context limit of 32768"
        rf"max(?:imum)?[ _](?:allowed[ _])?(?:context|input|prompt)[ _]?(?:length|limit|size|tokens?)?\s*"
        rf"(?:is|of|:|=|\()\s*{_NUMBER}",
        # llama.cpp, LM Studio, Ollama: "the available context size (8192 tokens)", "context length of only 4096 tokens"
        rf"context[ _](?:size|length|window|limit)\s*(?:is|of|:|=|\()?\s*(?:only\s+)?\(?{_NUMBER}",
        # Gemini: "exceeds the maximum number of tokens allowed (1048576)"
        rf"maximum number of (?:input )?tokens allowed\s*\(?{_NUMBER}",
        # OpenAI Responses: "input tokens exceed the configured limit of 272000 tokens"; Cerebras: "limit is 8192"
        rf"limit (?:of|is)\s*{_NUMBER}",
        # Mistral: "too large for model with 32768 maximum context length"
        rf"{_NUMBER} maximum context length",
        rf"n_ctx\W{{0,4}}{_NUMBER}",
    )
)
_SMALLEST = 256  # tokens; smaller numbers in such messages have another meaning


def stated_limit(message: str) -> int | None:
    """The context in tokens stated by an error message; None if it states none."""
    for pattern in _STATED:
        for match in pattern.finditer(message):
            limit = int(re.sub(r"[,_]", "", match[1]))
            if limit >= _SMALLEST:
                return limit
    return None
