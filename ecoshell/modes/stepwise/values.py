"""What a result gives to a request that speaks of it: a number, a name, or the whole text."""

import re
from collections.abc import Sequence

from ecoshell.modes.stepwise import spans
from ecoshell.strategies import Step

_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
_ALONE = re.compile(rf"(?<![\w./:-]){_NUMBER}(?![\w/:]|-\w|\.\d)")
"""A number that is no part of a name, a date or a time."""
_OUTCOME = re.compile(rf".*[=≈]\s*({_NUMBER})(?:\s+(.+))?", re.DOTALL)
_MEASURE = re.compile(rf"({_ALONE.pattern})\s+([^\W\d_]+)")
_WORD = re.compile(r"[^\W\d_]+")


class NoValue(Exception):
    """Results give no such thing, or more than one; the message says which."""


def number(step: Step, asked: Sequence[str]) -> tuple[str, str]:
    """The number that a result comes to, and its unit if it has one.

    That is what it says an expression equals, or what it counts of the thing that the first of `asked` names which
    names any, or its only number. Raises NoValue.
    """
    said = text(step).strip()
    if outcome := _OUTCOME.fullmatch(said):
        return outcome[1].replace(",", ""), (outcome[2] or "").strip()
    measures = _MEASURE.findall(said)
    for request in asked:
        words = {_stem(word) for word in _WORD.findall(request)}
        counted = [(found, unit) for found, unit in measures if _stem(unit) in words]
        if len(counted) == 1:
            return counted[0][0].replace(",", ""), counted[0][1]
        if counted:
            either = " or ".join(f"{found} {unit}" for found, unit in counted)
            raise NoValue(f"the result of {step.call.name} could mean {either}")
    alone = list(dict.fromkeys(_ALONE.findall(said)))
    if len(alone) != 1:
        raise NoValue(f"the result of {step.call.name} gives {'several numbers' if alone else 'no number'}")
    return alone[0].replace(",", ""), ""


def names(step: Step) -> list[str]:
    """The files and addresses that a call was about; those in its result, where it was about none."""
    texts = [value for value in step.call.arguments.values() if isinstance(value, str)]
    called = [text for text in texts if text in (*spans.urls(text), *spans.paths(text))]
    if called or step.observation.truncated:
        return called
    return [*spans.urls(step.observation.text), *spans.file_paths(step.observation.text)]


def text(step: Step) -> str:
    """The result as it stands; raises NoValue for one that was cut."""
    if step.observation.truncated:
        raise NoValue(f"the result of {step.call.name} was cut")
    return step.observation.text


def _stem(word: str) -> str:
    return word.lower().rstrip("s")
