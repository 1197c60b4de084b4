"""Skills: instructions for a kind of task, known by name and loaded like a tool."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ecoshell.catalog.search import Ranker
from ecoshell.messages import ToolSchema

LISTED = 64
"""Skills up to which every question lists all names."""
SHORTLIST = 40
"""Names that a question lists of more; with `tool_search` they take at most the tokens of `LISTED` names."""
_USE = "tool_register loads one before such a task"


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """One skill; it has no schema and is never called."""

    name: str
    description: str
    body: str
    place: str
    """Its folder, as a tool can read it."""
    source: str
    """The file that defines it."""
    files: Callable[[], Sequence[str]]
    """Lists further files of the folder; may block."""

    @property
    def schema(self) -> ToolSchema:
        """Name and description, as for a tool without arguments."""
        return ToolSchema(self.name, self.description, {"type": "object", "properties": {}})

    def text(self) -> str:
        """What a model reads when it loads the skill; may block."""
        return self._text(", ".join(self.files()))

    @property
    def sketch(self) -> str:
        """The text without the names of further files, for an estimate of its size."""
        return self._text("")

    def _text(self, files: str) -> str:
        more = f" with {files}, which read_file reads" if files else ""
        return f"Instructions of the skill {self.name} (folder {self.place}{more}):\n\n{self.body}"


class Skills(Mapping[str, Skill]):
    """All known skills by name."""

    def __init__(self, skills: Iterable[Skill] = ()) -> None:
        self._skills = {skill.name: skill for skill in skills}
        self._ranker = Ranker([skill.schema for skill in self._skills.values()])

    def __getitem__(self, name: str) -> Skill:
        return self._skills[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._skills)

    def __len__(self) -> int:
        return len(self._skills)

    def search(self, query: str) -> list[str]:
        """Return the names of skills that fit a request, best first; may block."""
        return self._ranker.search(query) if self._skills else []

    def shortlist(self, question: str) -> tuple[str, ...]:
        """Return all names, or those that fit the question best if there are more than `LISTED`; may block."""
        return tuple(self if len(self) <= LISTED else self.search(question)[:SHORTLIST])


def listing(names: Sequence[str], descriptions: Mapping[str, str], *, total: int) -> str:
    """Return the line that lists the names, some with a description; empty without names.

    It says that `tool_search` finds others if there are more than `LISTED` in total.
    """
    entries = (
        f"{name} ({descriptions[name]})" if descriptions.get(name) else name for name in names
    )
    more = f"best fits of {total}, tool_search finds others; " if total > LISTED else ""
    return f"Skills (instructions; {more}{_USE}): {', '.join(entries)}" if names else ""
