"""The skill library: what is registered, who registered it, and what it costs in tokens (EcoAct §2.2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

By = Literal["agent", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class Skill:
    """A registered tool; `tokens` is what its document takes in the context."""

    name: str
    tokens: int
    by: By


@dataclass(frozen=True, slots=True)
class SkillLibrary:
    """Registered tools in the order of their registration; each name at most once."""

    skills: tuple[Skill, ...] = ()

    def __contains__(self, name: object) -> bool:
        return any(skill.name == name for skill in self.skills)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(skill.name for skill in self.skills)

    @property
    def tokens(self) -> int:
        return sum(skill.tokens for skill in self.skills)

    def get(self, name: str) -> Skill | None:
        """The skill of this name, if it is registered."""
        return next((skill for skill in self.skills if skill.name == name), None)

    def including(self, skills: Iterable[Skill]) -> "SkillLibrary":
        """The library with these added; those already in it stay as they are."""
        fresh = {skill.name: skill for skill in skills if skill.name not in self}
        return SkillLibrary((*self.skills, *fresh.values()))

    def without(self, name: str) -> "SkillLibrary":
        """The library without this name."""
        return SkillLibrary(tuple(skill for skill in self.skills if skill.name != name))
