"""ReAct: one path, thought and action in turn (EcoAct §3.1)."""

from ecoshell.strategies import (
    Outcome,
    Path,
    StrategySpec,
    Thinking,
    Thought,
    act,
    ending,
    is_new,
    stalled_after,
    think,
)


def react(question: str, max_steps: int) -> Thinking:
    """AskModel and act until a thought ends the path or `max_steps` model calls led to an action."""
    return onward(Path(question), max_steps)


def onward(path: Path, max_steps: int, thought: Thought | None = None) -> Thinking:
    """The same from this path on; a thought that was had on it already is the first.

    Steps that bring nothing new end it, as the model would only go on with them.
    """
    idle, patience = 0, stalled_after(max_steps)
    for _ in range(max_steps):
        thought = thought or (yield from think(path))
        if outcome := ending(thought, path):
            return outcome
        steps = yield from act(path, thought)
        idle = 0 if any(is_new(step, path) for step in steps) else idle + 1
        path, thought = path.then(*steps), None
        if idle == patience:
            return Outcome("exhausted", "", path, f"The last {patience} steps brought nothing new")
    return Outcome("exhausted", "", path)


REACT = StrategySpec("react", react, "one path, until there is an answer")
