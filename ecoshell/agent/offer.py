"""What a turn offers the model: which names, which documents up front, in which presentation, and why."""

from dataclasses import dataclass

from ecoshell.agent.kit import Cast, Kit
from ecoshell.catalog.presentation import GROW, PLAIN, STABLE, Presentation
from ecoshell.catalog.skills import Skill, SkillLibrary
from ecoshell.events import ToolsOffered


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools' side of a turn's beginning; token counts are this model's."""

    opening: str
    names: tuple[str, ...]
    upfront: tuple[Skill, ...]
    presentation: Presentation
    large: bool
    context_tokens: int
    everything_tokens: int
    exact: bool
    why: str

    def event(self) -> ToolsOffered:
        """The offer as the event that tells of it."""
        return ToolsOffered(
            names=self.names,
            upfront=tuple(skill.name for skill in self.upfront),
            presentation=self.presentation.name,
            context_tokens=self.context_tokens,
            everything_tokens=self.everything_tokens,
            exact=self.exact,
            why=self.why,
        )


def make_offer(question: str, kit: Kit, cast: Cast, library: SkillLibrary, named: frozenset[str]) -> Offer:
    """The offer for this question; `named` are the names that earlier turns of the session told already."""
    catalog = kit.catalog
    sizes = {document.name: cast.measure(document)[0] for document in catalog.documents}
    everything = kit.registration == "all"
    presentation = PLAIN if everything else (GROW if kit.presentation == "grow" else STABLE)
    upfront = catalog.names if everything else ()
    fresh = [catalog.document(name) for name in upfront if name not in library]
    untold = [name for name in catalog.names if name not in named]
    listing = presentation.opening(untold, fresh)
    names_tokens, exact = cast.tokens(", ".join(catalog.names))
    skills = tuple(Skill(document.name, sizes[document.name], "upfront") for document in fresh)
    return Offer(
        opening=f"{listing}\n\n{question}" if listing else question,
        names=catalog.names,
        upfront=skills,
        presentation=presentation,
        large=False,
        context_tokens=names_tokens + library.including(skills).tokens,
        everything_tokens=sum(sizes.values()),
        exact=exact,
        why="",
    )
