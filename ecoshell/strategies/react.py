"""ReAct: one path, thought and action in turn (EcoAct §3.1)."""

from ecoshell.strategies.base import Outcome, Path, Step, Thinking, Thought, Way, act, ending, think


def react(question: str, max_steps: int) -> Thinking:
    """Think and act until a thought ends the path or `max_steps` model calls led to an action."""
    return onward(Path(question), max_steps)


def onward(path: Path, max_steps: int, thought: Thought | None = None) -> Thinking:
    """The same from this path on; a thought that was had on it already is the first."""
    for _ in range(max_steps):
        thought = thought or (yield from think(path))
        outcome = ending(thought, path)
        if outcome is not None or thought.call is None:
            return outcome or Outcome("answered", thought.rationale, path)
        observation = yield from act(path, thought.call)
        path, thought = path.then(Step(thought.rationale, thought.call, observation)), None
    return Outcome("exhausted", "", path)


REACT = Way("react", react, "one path, until there is an answer")
