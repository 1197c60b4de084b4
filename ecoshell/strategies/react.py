"""ReAct: one path that alternates thoughts and calls (EcoAct §3.1)."""

from ecoshell.strategies.protocol import (
    AskModel,
    Outcome,
    Path,
    StrategySpec,
    Thinking,
    Thought,
    act,
    ending,
    is_new,
    stalled_after,
)


def react(question: str, max_steps: int) -> Thinking:
    """Think and act until a thought ends the path or `max_steps` thoughts have been executed."""
    return extend(Path(question), max_steps)


def extend(path: Path, max_steps: int, thought: Thought | None = None) -> Thinking:
    """Continue a path as ReAct does, beginning with `thought` if given.

    Consecutive steps without anything new end the path: the model would only repeat them.
    """
    idle, patience = 0, stalled_after(max_steps)
    for _ in range(max_steps):
        next_thought: Thought = thought or (yield AskModel(path))
        if outcome := ending(next_thought, path):
            return outcome
        steps = yield from act(path, next_thought)
        idle = 0 if any(is_new(step, path) for step in steps) else idle + 1
        path, thought = path.then(*steps), None
        if idle == patience:
            return Outcome("exhausted", "", path, f"The last {patience} steps brought nothing new")
    return Outcome("exhausted", "", path)


REACT = StrategySpec("react", react, "one path, until there is an answer")
