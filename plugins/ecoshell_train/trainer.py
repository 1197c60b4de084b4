"""The loop that everything is trained by: AdamW with a warm-up and a cosine, on a CPU or a GPU alike.

A run is a folder: `checkpoint.pt` is the last good state, `curve.jsonl` a row for every step, `curve.png` its picture.
What a run comes to depends on its recipe and its examples alone: order and dropout are drawn anew for each step, so
that a killed run that is begun again ends as one that was left alone.
"""

import hashlib
import io
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ecoshell.errors import ModelBroken, StoreError, UsageError
from ecoshell.paths import remedy, replacement

E = TypeVar("E")
_contra = TypeVar("_contra", contravariant=True)

CHECKPOINT = "checkpoint.pt"
CURVE = "curve.jsonl"
PICTURE = "curve.png"
_STATES = 3
"""Numbers that a checkpoint keeps for each trained one: itself, and AdamW's two averages."""
_NUMBER = 4
"""Bytes of a trained number."""
_LIBRARIES = ("torch", "transformers", "accelerate", "gguf")
_NO_MEMORY = ("not enough memory", "out of memory")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long and how fast is learned.

    `batch` counts the examples of a step, `tokens` the most that are computed at once, with their padding.
    """

    steps: int
    batch: int = 16
    rate: float = 1e-3
    warmup: float = 0.05
    """Share of the steps in which the rate rises; after it, it falls along a cosine to a tenth."""
    decay: float = 0.01
    tokens: int = 4096
    every: int = 50
    """Steps between checkpoints, each with a validation."""
    seed: int = 1

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = max(1, round(self.steps * self.warmup))
        if step < rising:
            return self.rate * (step + 1) / rising
        done = (step - rising) / max(1, self.steps - rising)
        return self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes. `hours` are None where this machine's speed cannot be measured."""

    tokens: int
    steps: int
    hours: float | None
    disk_mb: float
    note: str = ""
    """What a person should know of what it is computed from."""

    def __add__(self, other: "Estimate") -> "Estimate":
        hours = None if self.hours is None or other.hours is None else self.hours + other.hours
        return Estimate(self.tokens + other.tokens, self.steps + other.steps, hours, self.disk_mb + other.disk_mb)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; `note` is something that a person should know."""

    step: int
    steps: int
    loss: float | None = None
    validation: float | None = None
    seconds_left: float | None = None
    note: str = ""
    stage: str = ""
    """Which of several trainings it is."""


Tell = Callable[[Progress], None]


class Learner(Protocol[_contra]):
    """What is trained: a model, and what it costs it to be wrong about examples."""

    def trained(self) -> Mapping[str, Any]:
        """The parameters that are learned, by name."""
        ...

    def tokens(self, example: _contra) -> int:
        """The length of an example."""
        ...

    def weight(self, example: _contra) -> int:
        """How many targets an example has."""
        ...

    def loss(self, examples: Sequence[_contra]) -> Any:
        """The sum of the losses of all targets of some examples, as a tensor that can be derived."""
        ...


def require() -> Any:
    """PyTorch; raises UsageError when the extra is not there."""
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise UsageError(f"Training needs {', '.join(missing)}.", fix="pip install 'ecoshell[train]'")
    return import_module("torch")


def device() -> Any:
    """Where is computed: the first GPU of CUDA, or the CPU."""
    torch = require()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision() -> Any:
    """What it computes in: bfloat16, or float32 on a CPU without a unit for the former, which is far slower there."""
    torch = require()
    short = device().type == "cuda" or torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return torch.bfloat16 if short else torch.float32


def train(
    learner: Learner[E],
    examples: Sequence[E],
    validation: Sequence[E],
    recipe: Recipe,
    folder: Path,
    tell: Tell,
) -> list[dict[str, Any]]:
    """Train to the end of the recipe, from the folder's checkpoint on if there is one; returns the curve's rows.

    Raises UsageError for a folder of another run, StoreError when nothing can be written, and ModelBroken when memory
    is short for a single example.
    """
    torch = require()
    run = _Run(torch, learner, recipe, folder, _digest(recipe, examples))
    folder.mkdir(parents=True, exist_ok=True)
    rows = run.resume()
    began, first = time.monotonic(), run.step

    def told(note: str = "") -> None:
        done = run.step - first
        seconds_left = (time.monotonic() - began) / done * (recipe.steps - run.step) if done else None
        row = rows[-1] if rows else {}
        tell(Progress(run.step, recipe.steps, row.get("loss"), row.get("validation"), seconds_left, note))

    told(f"Going on from step {first}." if first else "")
    with (folder / CURVE).open("a", encoding="utf-8") as curve:
        while run.step < recipe.steps:
            chosen = _batch(examples, recipe, run.step)
            row: dict[str, Any] = {"step": run.step + 1, "tokens": sum(map(learner.tokens, chosen))}
            row["rate"] = recipe.rate_at(run.step)
            row["loss"] = run.learn(chosen, told)
            run.step += 1
            if due := run.step % recipe.every == 0 or run.step == recipe.steps:
                row["validation"] = run.validate(validation)
            rows.append(row)
            try:
                print(json.dumps(row), file=curve, flush=True)
                if due:
                    run.save()
            except OSError as error:
                if run.step == recipe.steps:
                    raise StoreError(
                        f"The checkpoint cannot be written: {error.strerror}.",
                        kept="The one before is still there.",
                        fix=remedy(error, "Choose another --out, and train again."),
                    ) from error
                told(f"No checkpoint could be written ({error.strerror}); the one before is still there.")
            told()
    if find_spec("matplotlib"):
        with suppress(OSError):
            (folder / PICTURE).write_bytes(picture(rows))
    return rows


def estimate(learner: Learner[E], examples: Sequence[E], recipe: Recipe, *, numbers: int) -> Estimate:
    """What a run over these examples takes, of a learner with so many trained numbers.

    A part of a batch is computed to tell how long it takes.
    """
    lengths = (learner.tokens(example) for step in range(recipe.steps) for example in _batch(examples, recipe, step))
    tokens = sum(lengths)
    hours = None
    if all(find_spec(name) for name in _LIBRARIES):
        run = _Run(require(), learner, recipe, Path(), "")
        sample = next(_portions(learner, _batch(examples, recipe, 0), recipe.tokens))
        run.derive(sample, 1)  # the first time takes longer
        began = time.monotonic()
        run.derive(sample, 1)
        hours = (time.monotonic() - began) / sum(map(learner.tokens, sample)) * tokens / 3600
    return Estimate(tokens, recipe.steps, hours, numbers * _NUMBER * _STATES / 1e6)


class _Run:
    """A learner in training: its optimizer and how far it is."""

    def __init__(self, torch: Any, learner: Learner[Any], recipe: Recipe, folder: Path, digest: str) -> None:
        self.step = 0
        self._torch, self._learner, self._recipe, self._folder, self._digest = torch, learner, recipe, folder, digest
        torch.manual_seed(recipe.seed)
        self._trained = dict(learner.trained())
        self._optimizer = torch.optim.AdamW(
            self._trained.values(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay
        )
        self._kind = next(iter(self._trained.values())).device.type
        self._room = recipe.tokens

    def learn(self, examples: Sequence[Any], note: Callable[[str], None]) -> float:
        """One step of the optimizer; returns the mean loss. Where memory is short, less is computed at once."""
        weight = sum(map(self._learner.weight, examples))
        while True:
            self._torch.manual_seed(self._recipe.seed * 1_000_003 + self.step)
            self._optimizer.zero_grad(set_to_none=True)
            try:
                loss = sum(self.derive(few, weight) for few in _portions(self._learner, examples, self._room))
                break
            except (MemoryError, RuntimeError) as error:  # PyTorch's own error of the kind is a RuntimeError
                if not isinstance(error, MemoryError) and not any(word in str(error) for word in _NO_MEMORY):
                    raise
                if self._room < max(map(self._learner.tokens, examples)):
                    raise ModelBroken("Memory is short for a single example.", fix="Train a smaller model.") from error
                self._room //= 2
            self._optimizer.zero_grad(set_to_none=True)
            if self._kind == "cuda":
                self._torch.cuda.empty_cache()
            note(f"Memory is short: at most {self._room} tokens are computed at once from here.")
        self._torch.nn.utils.clip_grad_norm_(self._trained.values(), 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.rate_at(self.step)
        self._optimizer.step()
        return loss

    def derive(self, examples: Sequence[Any], weight: int) -> float:
        """Add to the gradients what some of a step's examples say; returns their part of the mean loss."""
        with self._autocast():
            loss = self._learner.loss(examples) / max(1, weight)
        loss.backward()
        return float(loss.detach())

    def _autocast(self) -> Any:
        short = precision()
        return self._torch.autocast(self._kind, short, enabled=short is self._torch.bfloat16)

    def validate(self, examples: Sequence[Any]) -> float | None:
        """The mean loss of examples that nothing is learned from."""
        weight = sum(map(self._learner.weight, examples))
        if not weight:
            return None
        with self._torch.no_grad(), self._autocast():
            portions = _portions(self._learner, examples, self._room)
            return sum(float(self._learner.loss(few)) for few in portions) / weight

    def save(self) -> None:
        """Replace the checkpoint whole or not at all; raises OSError."""
        trained = {name: parameter.detach().cpu() for name, parameter in self._trained.items()}
        state = {"run": self._digest, "step": self.step, "room": self._room, "trained": trained}
        buffer = io.BytesIO()  # what PyTorch raises on a full disk says nothing of it
        self._torch.save({**state, "optimizer": self._optimizer.state_dict()}, buffer)
        with replacement(self._folder / CHECKPOINT) as file:
            file.write(buffer.getbuffer())

    def resume(self) -> list[dict[str, Any]]:
        """Take up the checkpoint, if there is one; returns the rows of the curve up to it, and drops those after it."""
        file, curve = self._folder / CHECKPOINT, self._folder / CURVE
        if file.is_file():
            state = self._torch.load(file, map_location="cpu", weights_only=True)
            if state["run"] != self._digest:
                raise UsageError(
                    f"{self._folder} holds a run with other examples or numbers.",
                    fix="Choose another --out, or remove the folder.",
                )
            with self._torch.no_grad():
                for name, parameter in self._trained.items():
                    parameter.copy_(state["trained"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self._room = state["step"], state["room"]
        rows = [row for row in curve_of(self._folder) if row["step"] <= self.step]
        with replacement(curve) as fresh:
            fresh.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        return rows


def _batch(examples: Sequence[E], recipe: Recipe, step: int) -> list[E]:
    """The examples of a step: each comes once before any comes again, every time in another order."""
    chosen: list[E] = []
    for place in range(step * recipe.batch, (step + 1) * recipe.batch):
        turn, index = divmod(place, len(examples))
        chosen.append(examples[_order(len(examples), recipe.seed, turn)[index]])
    return chosen


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(count: int, seed: int, turn: int) -> list[int]:
    key = (count, seed, turn)
    if key not in _orders:
        if len(_orders) > 1:
            _orders.clear()
        _orders[key] = random.Random(f"{seed} {turn}").sample(range(count), count)
    return _orders[key]


def _portions(learner: Learner[E], examples: Sequence[E], room: int) -> Iterator[list[E]]:
    """Examples of like lengths together, at most so many tokens with their padding; one at least."""
    portion: list[E] = []
    for example in sorted(examples, key=learner.tokens):
        if portion and learner.tokens(example) * (len(portion) + 1) > room:
            yield portion
            portion = []
        portion.append(example)
    if portion:
        yield portion


def _digest(recipe: Recipe, examples: Sequence[Any]) -> str:
    """What tells a run from others; how often it is saved and how much is computed at once make no other run."""
    same = replace(recipe, every=1, tokens=1)
    digest = hashlib.sha256(json.dumps(asdict(same)).encode())
    for example in examples:
        digest.update(repr(example).encode())
    return digest.hexdigest()


# -- curves


def curve_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's curve; a line that a killed process left half written is left out."""
    rows: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (folder / CURVE).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows


def plotted(rows: Sequence[Mapping[str, Any]]) -> str:
    """The curves in plain characters; empty where plotille is not installed or there is nothing to draw."""
    if find_spec("plotille") is None or len(rows) < 2:
        return ""
    figure = import_module("plotille").Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = 60, 15, False, False
    figure.x_label, figure.y_label = "step", "loss, validation o"
    figure.y_ticks_fkt = figure.x_ticks_fkt = _tick
    for (across, up), mark in zip(_lines(rows), (None, "o"), strict=True):
        if across:
            figure.plot(across, up, marker=mark)
    return str(figure.show()).replace("⠀", " ")


def picture(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The curves as a PNG image; needs matplotlib."""
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for (across, up), name in zip(_lines(rows), ("loss", "validation"), strict=True):
        axes.plot(across, up, label=name)
    axes.set_xlabel("step")
    axes.legend()
    image = io.BytesIO()
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).print_png(image)
    return image.getvalue()


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[int], list[float]]]:
    for name in ("loss", "validation"):
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        yield [step for step, _ in points], [value for _, value in points]


def _tick(value: float, _: object) -> str:
    return f"{value:.4g}"
