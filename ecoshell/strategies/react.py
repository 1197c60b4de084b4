"""ReAct: one path, thought and action in turn (EcoAct §3.1)."""

from ecoshell.strategies.base import Outcome, Path, Step, Thinking, Way, act, ending, think


def react(question: str, max_steps: int) -> Thinking:
    """Think and act until a thought ends the path or `max_steps` model calls led to an action."""
    path = Path(question)
    for _ in range(max_steps):
        thought = yield from think(path)
        outcome = ending(thought, path)
        if outcome is not None or thought.call is None:
            return outcome or Outcome("answered", thought.rationale, path)
        observation = yield from act(path, thought.call)
        path = path.then(Step(thought.rationale, thought.call, observation))
    return Outcome("exhausted", "", path)


REACT = Way("react", react, "one path, until there is an answer")
