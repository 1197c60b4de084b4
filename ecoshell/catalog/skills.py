"""The registered tools of a session."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

RegisteredBy = Literal["agent", "first_call", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class Skill:
    """A registered tool; `tokens` is the size of its schema in the context."""

    name: str
    tokens: int
    by: RegisteredBy


@dataclass(frozen=True, slots=True)
class SkillLibrary:
    """Registered tools by name, in the order of registration."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])

    def __contains__(self, name: object) -> bool:
        return name in self.skills

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.skills)

    @property
    def tokens(self) -> int:
        return sum(skill.tokens for skill in self.skills.values())

    def including(self, skills: Iterable[Skill]) -> "SkillLibrary":
        """Return the library with these added; existing entries are unchanged."""
        extended = dict(self.skills)
        for skill in skills:
            extended.setdefault(skill.name, skill)
        return SkillLibrary(extended)

    def without(self, names: Container[str]) -> "SkillLibrary":
        """Return the library without these names."""
        skills = {name: skill for name, skill in self.skills.items() if name not in names}
        return SkillLibrary(skills)
