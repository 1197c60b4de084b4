"""What of a view a small model is asked about."""

from collections.abc import Sequence

from ecoshell.agent.model_set import View
from ecoshell.agent.workspace import without_marks
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell.strategies import Step

MOST_CHARACTERS = 4000


def gist(view: View) -> str:
    """The beginning of the question, where it says what is wanted; the rest of a pasted file is not searched for it."""
    return without_marks(view.path.question[:MOST_CHARACTERS])


def results(steps: Sequence[Step]) -> list[Step]:
    """The steps in which a tool did something, meta-tools left out."""
    return [step for step in steps if step.call.name not in META_TOOLS and step.observation.ok]


def registered(view: View, name: str) -> ToolDocument | None:
    """The document of a tool that may be called; None where it is to be registered first."""
    return next((document for document in view.registered if document.name == name), None)
