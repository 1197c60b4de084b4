"""A planner trained by CAORL (CATP-LLM §3): a file of small decision transformers that run with numpy only.

Plans are sequences of actions: the tool head chooses a tool or [EoP], the dependency head a tool, `<task>` or <EoD>
(§3.2.2). An action is an integer. For n tools, 0 to n-1 are [tool], n is [EoP], n+1 to 2n are <tool>, 2n+1 is `<task>`
and 2n+2 is <EoD>.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.errors import StoreError, UsageError
from ecoshell.paths import remedy, replacement
from ecoshell.planning.catp.costs import importance
from ecoshell.planning.catp.masking import Draft
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.tpl import CLOSE, END, OPEN, START, token_word
from ecoshell.planning.catp.types import Signature

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 40
"""Maximum tokens of a plan in the benchmark."""
_MAX_ACTIONS = 32
"""More than any plan of the benchmark has."""
_WIDTH, _LAYERS, _HEADS = 48, 2, 4
_MASKED = -1e9
_FIX = "Use a file that `ecoshell train catp` wrote."

Actions = tuple[int, ...]
Weights = Mapping[str, Any]
"""Arrays of numpy, or tensors of PyTorch."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of training: the method, its ablations (CATP-LLM Table 4) and the baseline.

    - `context`: the input contains the cost of each tool at every size level, and the level.
    - `feedback`: every action has the plan's cost so far as a reward, not only the last one.
    - `masking`: only actions that can lead to a valid plan are considered.
    - `imitates`: learns only the best plan of each task, without returns.
    """

    context: bool = True
    feedback: bool = True
    masking: bool = True
    imitates: bool = False


VARIANTS: Mapping[str, Variant] = {
    "caorl": Variant(),
    "ift": Variant(context=False, feedback=False, imitates=True),
    "no-context": Variant(context=False),
    "no-feedback": Variant(feedback=False),
    "no-masking": Variant(masking=False),
}
METHOD, BASELINE = "caorl", "ift"
ABLATIONS = ("no-context", "no-feedback", "no-masking")


@dataclass(frozen=True, slots=True)
class Situation:
    """A task as a planner sees it: the words of its description, and the types of its outputs and inputs."""

    words: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ("image",)


def words_of(description: str) -> tuple[str, ...]:
    """Return the words of a description; an output and its language form one word, as there may be several."""
    return tuple(re.findall(r"[^\s,?]+", re.sub(r"(?<=\w) in (?=\w)", "·", description.lower())))


class Language:
    """The actions for a set of tools."""

    def __init__(self, types: Mapping[str, tuple[Sequence[str], str]]) -> None:
        self.tools = sorted(types)
        self._signatures = {tool: Signature.strict(*types[tool]) for tool in self.tools}
        self._problems: dict[Situation, Problem] = {}
        count = len(self.tools)
        self.end, self.task, self.close, self.start = (
            count,
            2 * count + 1,
            2 * count + 2,
            2 * count + 3,
        )
        words = [token_word(Node(tool)) for tool in self.tools]
        tokens = (
            *(f"[{word}]" for word in words),
            END,
            *(f"<{word}>" for word in words),
            TASK,
            CLOSE,
        )
        self._tokens = tokens
        self._actions = {token: action for action, token in enumerate(tokens)}

    def written(self, plan: GraphPlan) -> Actions:
        """Return a plan as actions, with dependencies in the mask's order."""
        positions = {node.label: position for position, node in enumerate(plan.nodes)}
        words: list[int] = []
        for node in plan.nodes:
            after = sorted(node.after, key=lambda label: positions.get(label, -1))
            names = (
                TASK if label == TASK else f"<{token_word(plan.nodes[positions[label]])}>"
                for label in after
            )
            words += [
                self.tools.index(node.tool),
                *(self._actions[name] for name in names),
                self.close,
            ]
        return (*words, self.end)

    def text(self, actions: Actions) -> str:
        """Return actions as tokens, with the tokens between them that no head chooses."""
        parts = (
            f"{self._tokens[word]} {OPEN}" if word < self.end else self._tokens[word]
            for word in actions
        )
        return " ".join((START, *parts))

    def problem(self, situation: Situation) -> Problem:
        """Return the constraints of the mask."""
        bare = Situation((), situation.outputs, situation.inputs)
        if bare not in self._problems:
            self._problems[bare] = Problem(
                self._signatures, bare.inputs, bare.outputs, max_tokens=MAX_TOKENS, uses=1
            )
        return self._problems[bare]

    def head(self, actions: Actions) -> range:
        """Return all actions of the head that is next."""
        return (
            range(self.end + 1)
            if not actions or actions[-1] == self.close
            else range(self.end + 1, self.start)
        )

    def masked(self, situation: Situation) -> "Mask":
        """Return the mask at the start of a plan."""
        return Mask(Draft(self.problem(situation)), self._tokens, self._actions)


@dataclass(frozen=True, slots=True)
class Mask:
    """The actions that can lead to a valid plan."""

    draft: Draft
    tokens: Sequence[str]
    actions: Mapping[str, int]

    def allowed(self) -> tuple[int, ...]:
        """Return the allowed next actions; none when the plan is complete."""
        return tuple(sorted(self.actions[token] for token in self.draft.next_tokens()))

    def add(self, action: int) -> None:
        """Append an action; raises PlanFault if it is not allowed."""
        self.draft.add(self.tokens[action])
        if OPEN in self.draft.next_tokens():
            self.draft.add(OPEN)


@dataclass(frozen=True, slots=True)
class Model:
    """A trained decision transformer and figures from its training.

    - `costs`: of each tool at each size level, as a share of C_max.
    - `targets`: the highest return by output types; the empty name means any type.
    - `scale`: mean and standard deviation of returns.
    """

    weights: Weights
    costs: "NDArray[np.float32]"
    targets: Mapping[str, float]
    scale: tuple[float, float]


@dataclass(frozen=True)
class Planner:
    """The contents of a planner's file: models by variant and fold.

    `levels` are the centres of the image size levels in pixels, `folds` the tasks that the models of a fold have not
    seen.
    """

    types: Mapping[str, tuple[Sequence[str], str]]
    levels: tuple[float, ...]
    alpha: float
    words: tuple[str, ...]
    tasks: Mapping[int, Situation]
    folds: tuple[tuple[int, ...], ...]
    models: Mapping[tuple[str, int], Model] = field(default_factory=dict[tuple[str, int], Model])

    @cached_property
    def language(self) -> Language:
        """The actions for its tools."""
        return Language(self.types)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the trained variants."""
        return tuple(name for name in VARIANTS if (name, 0) in self.models)

    @property
    def unseen(self) -> frozenset[int]:
        """The tasks it can plan: a model has not seen them."""
        return frozenset(task for _, fold in self.models for task in self.folds[fold])

    def plan(self, variant: str, task: int, level: int, among: Sequence[Actions] = ()) -> Actions:
        """Return the plan for an input of a size level, chosen from `among` or, if empty, from all valid plans.

        Uses the model that has not seen the task. The target is the highest return of tasks with the same outputs,
        adjusted by the plan's rewards so far.
        """
        import numpy as np

        how, situation = VARIANTS[variant], self.tasks[task]
        fold = next(number for number, tasks in enumerate(self.folds) if task in tasks)
        model, language = self.models[variant, fold], self.language
        mask = language.masked(situation) if how.masking and not among else None
        kind = "+".join(situation.outputs)
        returns, spent, actions = [model.targets.get(kind, model.targets[""])], 0.0, Actions()
        while len(actions) < _MAX_ACTIONS and (not actions or actions[-1] != language.end):
            if among:
                allowed = sorted(
                    {option[len(actions)] for option in among if option[: len(actions)] == actions}
                )
            else:
                allowed = [*language.head(actions)] if mask is None else [*mask.allowed()]
            action = allowed[0]
            if len(allowed) > 1:
                query = inputs(self, how, model, [(situation, level, actions, returns)])
                scores = forward(model.weights, query, np)[0, -1]
                action = allowed[int(np.argmax(scores[allowed]))]
            if mask is not None:
                mask.add(action)
            if action < language.end:
                spent += float(model.costs[action, level])
            actions = (*actions, action)
            returns.append(returns[-1] + ((1 - self.alpha) * spent if how.feedback else 0.0))
        return actions

    def save(self, file: Path) -> None:
        """Write the file atomically; raises StoreError."""
        import numpy as np

        arrays: dict[str, Any] = {}
        header = [
            [name, fold, model.targets, model.scale] for (name, fold), model in self.models.items()
        ]
        own = {name: getattr(self, name) for name in ("types", "levels", "alpha", "words", "folds")}
        own |= {
            "tasks": {task: asdict(situation) for task, situation in self.tasks.items()},
            "models": header,
        }
        arrays["about"] = np.frombuffer(json.dumps(own).encode(), np.uint8)
        for (name, fold), model in self.models.items():
            for part, values in {**model.weights, "costs": model.costs}.items():
                arrays[f"{name}/{fold}/{part}"] = np.asarray(
                    values, np.float16 if part != "costs" else np.float32
                )
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        try:
            with replacement(file, 0o644) as opened:
                opened.write(buffer.getbuffer())
        except OSError as error:
            raise StoreError(
                f"{file} cannot be written: {error.strerror}.",
                fix=remedy(error, "Choose another --out."),
            ) from error


def read_planner(file: Path) -> Planner:
    """Read a planner; raises UsageError."""
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            models: dict[tuple[str, int], Model] = {}
            for name, fold, targets, scale in about.pop("models"):
                begin = f"{name}/{fold}/"
                parts = {
                    key.removeprefix(begin): arrays[key]
                    for key in arrays.files
                    if key.startswith(begin)
                }
                costs = parts.pop("costs")
                weights = {key: value.astype(np.float32) for key, value in parts.items()}
                models[name, fold] = Model(weights, costs, targets, tuple(scale))
        tasks = {
            int(task): Situation(**{k: tuple(v) for k, v in array.items()})
            for task, array in about["tasks"].items()
        }
        folds: tuple[tuple[int, ...], ...] = tuple(tuple(fold) for fold in about["folds"])
        words: tuple[str, ...] = tuple(about["words"])
        levels: tuple[float, ...] = tuple(about["levels"])
        return Planner(about["types"], levels, about["alpha"], words, tasks, folds, models)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        AttributeError,
        zipfile.BadZipFile,
    ) as failure:
        why = (
            f": {failure}" if isinstance(failure, OSError) else ""
        )  # NumPy's message advises to trust the file.
        raise UsageError(f"{file} is not a planner{why}.", fix=_FIX) from failure


# The network


def fresh(planner: Planner, seed: int) -> "dict[str, NDArray[np.float32]]":
    """Return random initial weights."""
    import numpy as np

    tools, d = len(planner.language.tools), _WIDTH
    shapes: dict[str, tuple[int, ...]] = {
        "tool": (tools, d),
        "cost": (len(planner.levels), d),
        "level": (len(planner.levels), d),
        "word": (len(planner.words) + 1, d),
        "action": (planner.language.start + 1, d),
        "return": (1, d),
        "place": (_MAX_ACTIONS + 1, d),
        "tool_head": (d, tools + 1),
        "dependency_head": (d, tools + 2),
    }
    norms = ["cost", "action", "return", "out"]
    for layer in range(_LAYERS):
        shapes |= {
            f"{layer}.attend": (d, 3 * d),
            f"{layer}.join": (d, d),
            f"{layer}.up": (d, 4 * d),
        }
        shapes |= {f"{layer}.down": (4 * d, d), f"{layer}.up_bias": (4 * d,)}
        norms += [f"{layer}.attend", f"{layer}.up"]
    draw = np.random.default_rng(seed)
    weights = {
        name: draw.normal(0.0, 0.08, shape).astype(np.float32) for name, shape in shapes.items()
    }
    for name in norms:
        weights[f"{name}.gain"], weights[f"{name}.shift"] = (
            np.ones(d, np.float32),
            np.zeros(d, np.float32),
        )
    return weights


def inputs(
    planner: Planner,
    how: Variant,
    model: Model,
    queries: Sequence[tuple[Situation, int, Actions, Sequence[float]]],
) -> "dict[str, NDArray[Any]]":
    """Return the network's inputs for queries of task, input level, actions so far and returns-to-go.

    A query has one more return than actions; positions beyond a plan's end are ignored.
    """
    import numpy as np

    known_words = {word: number for number, word in enumerate(planner.words, 1)}
    texts = [
        [known_words[word] for word in query.words if word in known_words] for query, *_ in queries
    ]
    width, longest = max(1, *map(len, texts)), max(len(returns) for *_, returns in queries)
    tools, steps = len(planner.language.tools), np.arange(longest)
    words = np.zeros((len(queries), width), np.int64)
    actions = np.full((len(queries), longest), planner.language.start, np.int64)
    returns = np.zeros((len(queries), longest), np.float32)
    levels = np.zeros(len(queries), np.int64)
    costs = np.zeros((len(queries), *model.costs.shape), np.float32)
    for row, (_, level, actions_so_far, to_go) in enumerate(queries):
        words[row, : len(texts[row])] = texts[row]
        actions[row, 1 : len(actions_so_far) + 1] = actions_so_far[: longest - 1]
        if not how.imitates:
            returns[row, : len(to_go)] = (np.array(to_go) - model.scale[0]) / model.scale[1]
        if how.context:
            levels[row] = level
            costs[row] = np.log(model.costs * 100 + 1) * importance(len(planner.levels), level)
    prefix = tools + width + 1
    visible = np.zeros((len(queries), 1, prefix + longest, prefix + longest), np.float32)
    visible[:, :, :, tools : tools + width] = np.where(words == 0, _MASKED, 0)[:, None, None]
    visible[:, :, :prefix, prefix:] = _MASKED
    visible[:, :, prefix:, prefix:] = np.where(steps[None] > steps[:, None], _MASKED, 0)
    return {
        "costs": costs,
        "level": levels,
        "words": words,
        "actions": actions,
        "returns": returns,
        "seen": visible,
    }


def forward(
    w: Weights, arrays: Mapping[str, Any], xp: Any, drop: Callable[[Any], Any] = lambda x: x
) -> Any:
    """Return the scores of all actions at each step of a plan; `xp` is numpy or torch.

    Tools with their costs, the task's words and the input level attend to each other. The steps of the plan attend to
    them and to earlier steps. Embeddings of returns and actions are normalized and added to the position embedding.
    """
    tools = w["tool"] + _norm(arrays["costs"] @ w["cost"], w, "cost")
    level = w["level"][arrays["level"]][:, None]
    steps = _norm(arrays["returns"][..., None] @ w["return"], w, "return") + _norm(
        w["action"][arrays["actions"]], w, "action"
    )
    steps = steps + w["place"][: steps.shape[1]]
    x = drop(xp.concatenate([tools, w["word"][arrays["words"]], level, steps], axis=1))
    for layer in range(_LAYERS):
        count, length, width = x.shape
        parts = _norm(x, w, f"{layer}.attend") @ w[f"{layer}.attend"]
        parts = parts.reshape(count, length, 3, _HEADS, width // _HEADS)
        query, key, value = (parts[:, :, at].swapaxes(1, 2) for at in range(3))
        scores = query @ key.swapaxes(-1, -2) * (width // _HEADS) ** -0.5 + arrays["seen"]
        shares = xp.exp(scores - xp.amax(scores, -1, keepdims=True))
        shares = shares / shares.sum(-1, keepdims=True)
        attended = (shares @ value).swapaxes(1, 2).reshape(count, length, width)
        x = x + drop(attended @ w[f"{layer}.join"])
        hidden = (_norm(x, w, f"{layer}.up") @ w[f"{layer}.up"] + w[f"{layer}.up_bias"]).clip(min=0)
        x = x + drop(hidden @ w[f"{layer}.down"])
    x = _norm(x[:, -steps.shape[1] :], w, "out")
    return xp.concatenate([x @ w["tool_head"], x @ w["dependency_head"]], axis=-1)


def _norm(x: Any, w: Weights, name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / ((centred**2).mean(-1, keepdims=True) + 1e-5) ** 0.5 * w[f"{name}.gain"]
        + w[f"{name}.shift"]
    )
