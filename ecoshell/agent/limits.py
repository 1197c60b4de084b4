"""How far a model may go: output tokens, steps and result sizes that follow the model where the settings say `auto`."""

from typing import Literal

from ecoshell.models import Traits

Limit = int | Literal["auto"]

DEFAULT_OUTPUT = 16_384
"""Output tokens of a model whose maximum is unknown and whose context is large or unknown."""
SMALL_MODEL_OUTPUT = 1_024
SMALL_MODEL_STEPS = 24
STEPS = 200
UNLIMITED_STEPS = 1_000_000
_LARGE_CONTEXT = 65_536

_LEAST_RESULT, _MOST_RESULT = 8_000, 50_000
_LEAST_CONTEXT, _MOST_CONTEXT = 8_192, 131_072
"""Contexts, in tokens, at which a result has the least and the most characters."""


def output_limit(traits: Traits, setting: Limit) -> int:
    """Output tokens of one reply, reasoning included."""
    if setting != "auto":
        return setting
    if traits.small:
        return SMALL_MODEL_OUTPUT
    if traits.max_output is not None:
        return traits.max_output
    if traits.context is None or traits.context >= _LARGE_CONTEXT:
        return DEFAULT_OUTPUT
    return traits.context // 4


def step_limit(traits: Traits, setting: Limit, *, capped: bool) -> int:
    """Steps of one turn: few for a small local model; a capable model under a cap is limited by the cap."""
    if setting != "auto":
        return setting
    if traits.local and not traits.capable:
        return SMALL_MODEL_STEPS
    return UNLIMITED_STEPS if capped else STEPS


def result_characters(context: int | None) -> int:
    """Characters of one tool result, for models with this context in tokens."""
    if context is None or context >= _MOST_CONTEXT:
        return _MOST_RESULT
    share = max(0, context - _LEAST_CONTEXT) / (_MOST_CONTEXT - _LEAST_CONTEXT)
    return _LEAST_RESULT + int(share * (_MOST_RESULT - _LEAST_RESULT))
