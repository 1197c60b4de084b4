"""What small models may write and run: only what the request names.

This is decided from the effects of the tool and the sources of the call's arguments, not from the phrasing of the
request.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshell.messages import Call, ToolSchema
from ecoshell.models import Traits
from ecoshell.strategies import Step
from ecoshell.tools import LASTING, Subject, Tool, subjects_of

TRUSTED_PARAMETERS = 3_000_000_000
"""A model with fewer weights may only write and run what the request names; models of unknown size are trusted."""
_LEADING_VERBS = re.compile(r"\w+(?:, \w+)*(?:,? or \w+)?")


def is_trusted(traits: Traits, setting: bool | None = None) -> bool:
    """Whether a model may write and run what the request does not name; `setting` overrides the default."""
    if setting is not None:
        return setting
    return traits.parameters is None or traits.parameters >= TRUSTED_PARAMETERS


def verbs(schemas: Iterable[ToolSchema]) -> frozenset[str]:
    """The verbs with which requests ask for tools: those at the beginning of their names and descriptions."""
    words: set[str] = set()
    for schema in schemas:
        first, underscore, _ = schema.name.partition("_")
        leading = _LEADING_VERBS.match(schema.description)
        words.update([first] if underscore else [])
        words.update(re.findall(r"\w+", leading.group()) if leading else [])
    lowered = frozenset(word.lower() for word in words if len(word) > 1 and word.isalpha())
    return lowered - {"or", "the", "an"}


@dataclass(frozen=True, slots=True)
class Guess:
    """What a call of an untrusted model is compared with."""

    question: str
    steps: Sequence[Step]
    """Earlier steps of the turn."""
    similar: Sequence[ToolSchema]
    """Tools with the same lasting effects as the called one."""
    exact: bool
    """Whether every argument must occur in the question or in results, as for the smallest models."""

    def deviation(self, call: Call, tool: Tool, workspace: Path) -> str:
        """What the call does beyond the request; empty if nothing, and for a tool without lasting effects.

        Reads the disk: only existing files must be named in the request or have been read.
        """
        if not tool.effects & LASTING:
            return ""
        tool_verbs = verbs([tool.schema] if self.exact else self.similar)
        if tool_verbs.isdisjoint(re.findall(r"\w+", self.question.lower())):
            return f"the request does not say so ({' or '.join(sorted(verbs([tool.schema])))})"
        done = [step for step in self.steps if step.observation.ok]
        if self.exact:
            source = [step.observation.text for step in done]
            values = _texts(call, call.arguments)
        else:
            source = [text for step in done for text in _texts(step.call, step.call.arguments)]
            paths = [name for name, subject in subjects_of(tool).items() if subject is Subject.PATH]
            values = [path for path in _texts(call, paths) if posixpath.exists(workspace / path)]
        context = " ".join("\n".join((self.question, *source)).split())
        for value in values:
            text = " ".join(value.removeprefix("./").split())
            if not text or not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", context):
                return f"“{value[:80]}” is neither in the request nor was it read"
        return ""


def _texts(call: Call, names: Iterable[str]) -> list[str]:
    """The values of these arguments, as texts."""
    values = [call.arguments[name] for name in names if name in call.arguments]
    return [
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values
    ]
