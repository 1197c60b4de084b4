"""What a model may write and run that is too small to be trusted with it: what the request plainly names.

That goes by what a tool does and by where the words of a call stand, never by how requests are phrased.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshell.messages import Call, ToolDocument
from ecoshell.models.base import Traits
from ecoshell.strategies.base import Step
from ecoshell.tools.base import LASTING, Subject, Tool, subjects_of

TRUSTED_PARAMETERS = 3_000_000_000
"""A model with fewer weights is not trusted with what the request does not name; one of unknown size is."""
_LEADING_VERBS = re.compile(r"\w+(?:, \w+)*(?:,? or \w+)?")


def is_trusted(traits: Traits, said: bool | None = None) -> bool:
    """Whether a model may write and run what it sees fit; `said` is what the settings say of it."""
    return said if said is not None else traits.parameters is None or traits.parameters >= TRUSTED_PARAMETERS


def verbs(documents: Iterable[ToolDocument]) -> frozenset[str]:
    """The verbs by which tools are called for: those their names and descriptions begin with."""
    words: set[str] = set()
    for document in documents:
        named, described = document.name.partition("_"), _LEADING_VERBS.match(document.description)
        words.update((named[0] if named[1] else "", *re.findall(r"\w+", described.group() if described else "")))
    return frozenset(word.lower() for word in words if len(word) > 1 and word.isalpha()) - {"or", "the", "an"}


@dataclass(frozen=True, slots=True)
class Guess:
    """What a call of a model that is not trusted is held against."""

    asked: str
    """The question."""
    steps: Sequence[Step]
    """What was done before in the turn."""
    alike: Sequence[ToolDocument]
    """The tools that leave behind the same kind of thing as the one that is called."""
    small: bool
    """Whether the model is of the smallest, which word nothing: all of a call stands in the question or in results."""

    def strange(self, call: Call, tool: Tool, workspace: Path) -> str:
        """What of a call is not in the request; empty where nothing is, and for a tool that leaves nothing behind.

        Looks at the disk: only a file that is there must be named, or have been read.
        """
        if not tool.effects & LASTING:
            return ""
        wanted = verbs([tool.document] if self.small else self.alike)
        if wanted.isdisjoint(re.findall(r"\w+", self.asked.lower())):
            return f"the request does not say so ({' or '.join(sorted(verbs([tool.document])))})"
        done = [step for step in self.steps if step.observation.ok]
        if self.small:
            source = [step.observation.text for step in done]
            values = _texts(call, call.arguments)
        else:
            source = [text for step in done for text in _texts(step.call, step.call.arguments)]
            places = [name for name, subject in subjects_of(tool).items() if subject is Subject.PATH]
            values = [path for path in _texts(call, places) if posixpath.exists(workspace / path)]
        missing = [one for one in values if not _stands(one, "\n".join((self.asked, *source)))]
        return f"“{missing[0][:80]}” is neither in the request nor was it read" if missing else ""


def _stands(text: str, source: str) -> bool:
    """Whether the source has this text in it, as words of its own."""
    wanted = " ".join(text.removeprefix("./").split())
    return bool(wanted) and bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", " ".join(source.split())))


def _texts(call: Call, names: Iterable[str]) -> list[str]:
    """The values of these arguments, as texts."""
    values = [call.arguments[name] for name in names if name in call.arguments]
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
