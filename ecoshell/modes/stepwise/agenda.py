"""The parts of a question: which is next, and what an answer leaves out and must tell: nothing half-done is hidden."""

from collections.abc import Callable, Sequence

from ecoshell.agent.approval import verbs
from ecoshell.agent.model_set import View
from ecoshell.messages import META_TOOLS, Call, ToolDocument
from ecoshell.modes.stepwise import choosing, filling
from ecoshell.modes.stepwise.choosing import Rank
from ecoshell.modes.stepwise.drafting import Part, taken_apart
from ecoshell.modes.stepwise.looking import MOST_CHARACTERS, gist, results
from ecoshell.strategies import Step

NO_TOOL = "no tool fits it; ask it by itself for an answer without one"


class Agenda:
    """What one question asks for, as far as a turn has come; each result on a path has done with one part, in order."""

    def __init__(self, view: View, *, rank: Rank, document: Callable[[str], ToolDocument]) -> None:
        """The question is taken apart by the common verbs, and by those of the tools that fit it best."""
        self.question = view.path.question
        known = [name for name in view.known if name not in META_TOOLS]
        fitting = choosing.shortlist(known, dict(rank(gist(view))))
        self.parts = taken_apart(gist(view), verbs(map(document, fitting)))
        self.left: dict[Part, str] = {}
        """Parts that will not be done, and why."""
        self.withheld: dict[Part, ToolDocument | None] = {}
        """Parts that may be ones for a tool that is not guessed at; None for one that is not."""
        self._untaken: dict[Part, Sequence[str]] = {}

    def open(self, view: View) -> list[Part]:
        """The parts that have no result yet and are not left out."""
        return [part for part in self.parts if part not in self.left][len(results(view.path.steps)) :]

    def given(self, part: Part, view: View) -> list[Step]:
        """The results of what the part speaks of, as far as there are any."""
        kept = [one for one in self.parts if one not in self.left]
        done = dict(zip(kept, results(view.path.steps), strict=False))
        return [done[one] for one in part.after if one in done]

    def stuck(self, part: Part) -> str:
        """Why the part cannot be done, where it speaks of one that is left out; else empty."""
        missing = next((one for one in part.after if one in self.left), None)
        return "" if missing is None else f"it speaks of “{missing.text}”, which is not done"

    def not_guessed(self) -> str:
        """A line for each part in which a tool was not guessed at."""
        return "\n".join(
            f"Nothing was changed or run for “{part.text}”. A model this small uses {tool.name} only where a request "
            f"begins by saying so ({', '.join(sorted(verbs([tool])))}) and holds all it takes."
            for part, tool in self.withheld.items()
            if tool is not None
        )

    def made(self, part: Part, wanted: filling.Filling, call: Call) -> None:
        """The part is done by this call, which was made of what was to be filled in."""
        self._untaken[part] = filling.untaken(wanted.document, wanted.text, call)

    def told(self, undone: Sequence[Part] = ()) -> str:
        """A line for each thing that is left out, to stand below the answer; `undone` are parts to name beside it."""
        left = {**self.left, **dict.fromkeys(undone, NO_TOOL)}
        lines = [f"- “{part.text}”: {why}" for part, why in left.items()]
        for part, names in self._untaken.items():
            if names and part not in left:
                quoted = ", ".join(f"“{name}”" for name in names)
                lines.append(f"- {quoted} in “{part.text}”: the call that was made does not seem to cover it")
        if len(self.question) > MOST_CHARACTERS:
            lines.append(f"- what the question says after its first {MOST_CHARACTERS:,} characters")
        return "\n".join(("Not done:", *lines)) if lines else ""
