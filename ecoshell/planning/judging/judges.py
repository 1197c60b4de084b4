"""Whether a result helped: what rules can tell of it (BTP §2.4, SPEC §2).

A result that failed by itself, or is empty, did not help. A call that was not run, or whose caller gave what does not
fit or is not there, says nothing about the tool: forbidding `read_file` after one mistyped path would end the task.
"""

import json
import re
from dataclasses import dataclass

from ecoshell.messages import Call, Observation
from ecoshell.planning.judging import shapes
from ecoshell.planning.judging.payload import Payload

_SHOWN = 120
_ABOUT_ERRORS = re.compile(r"error|exception|fail|trace|\blogs?\b|crash|\bbugs?\b", re.IGNORECASE)
_A_FILE = re.compile(r"path|file", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result helped; None when it says nothing about the tool, or nobody could tell."""

    helpful: bool | None
    by: str
    """`rules`, `classifier` or `model`; empty when nobody judged."""
    reason: str
    """In a few words; what a tool said in them is data."""
    sure: bool = True
    """Whether there is nothing more to tell: False where only reading the result against the question could."""


def by_rules(query: str, call: Call, observation: Observation) -> Verdict:
    """The verdict of rules on one result; never raises.

    They are sure of failures, of empty results and of mistakes of the caller. Of anything else they say that it helped,
    without having read it.
    """
    if observation.refused:
        return Verdict(None, "", "the call was not run")
    said = Payload.of(observation)
    if said.failed:
        return _failed(call, shapes.complaint(said))
    if observation.changes:
        return Verdict(True, "rules", "it changed files")
    message = shapes.failure(said)
    if not message:
        return _read(call, said)
    if not said.is_json and _may_be_wanted(query, call, said.text):
        return Verdict(None, "", "it reads like an error, which may be what was asked for", sure=False)
    return _failed(call, message)


def _read(call: Call, said: Payload) -> Verdict:
    """The verdict on a result that tells of no failure."""
    if shapes.silent(said):
        return Verdict(None, "", "it had nothing to show", sure=False)
    if not shapes.nothing(said):
        return Verdict(True, "rules", "it gave a result", sure=False)
    if shapes.acts(call.name):
        return Verdict(None, "", "it did something and had nothing to say", sure=False)
    return Verdict(False, "rules", "it found nothing")


def _failed(call: Call, message: str) -> Verdict:
    shown = " ".join(message.split())[:_SHOWN]
    if shapes.mistake(call, message):
        return Verdict(None, "", f"the call was wrong, not the tool: {shown}")
    return Verdict(False, "rules", f"it failed: {shown}" if shown else "it failed")


def _may_be_wanted(query: str, call: Call, text: str) -> bool:
    """Whether a text that reads like an error may be the answer: errors were asked about, or it is a file's."""
    given = json.dumps(list(call.arguments.values()), ensure_ascii=False, default=str)
    from_file = "\n" in text and any(map(_A_FILE.search, call.arguments))
    return from_file or bool(_ABOUT_ERRORS.search(f"{query} {given}"))
