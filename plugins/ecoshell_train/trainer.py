"""The training loop: AdamW with warm-up and cosine decay, on CPU or GPU.

A run is a folder with the last checkpoint (`checkpoint.pt`), one row per step (`curve.jsonl`) and a plot (`curve.png`).
Its result depends only on recipe and examples: order and dropout are seeded by step, so that a run that was killed and
continued ends like an uninterrupted one.
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
_NUMBERS_PER_PARAMETER = 3
"""A checkpoint contains each parameter and AdamW's two averages of it."""
_BYTES_PER_NUMBER = 4
_LIBRARIES = ("torch", "transformers", "accelerate", "gguf")
_MEMORY_ERRORS = ("not enough memory", "out of memory")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The length and the speed of training.

    - `batch`: examples per step.
    - `warmup`: share of steps in which the rate rises; then it falls to a tenth along a cosine.
    - `tokens`: tokens per forward pass at most, with padding.
    - `every`: steps between checkpoints, each with a validation.
    """

    steps: int
    batch: int = 16
    rate: float = 1e-3
    warmup: float = 0.05
    decay: float = 0.01
    tokens: int = 4096
    every: int = 50
    seed: int = 1

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rising = max(1, round(self.steps * self.warmup))
        if step < rising:
            return self.rate * (step + 1) / rising
        done = (step - rising) / max(1, self.steps - rising)
        return self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The effort of a run, and a note on the examples; `hours` is None if the speed cannot be measured."""

    tokens: int
    steps: int
    hours: float | None
    disk_mb: float
    note: str = ""

    def __add__(self, other: "Estimate") -> "Estimate":
        hours = None if self.hours is None or other.hours is None else self.hours + other.hours
        return Estimate(
            self.tokens + other.tokens,
            self.steps + other.steps,
            hours,
            self.disk_mb + other.disk_mb,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run, with an optional note for the user; `stage` names one of several trainings."""

    step: int
    steps: int
    loss: float | None = None
    validation: float | None = None
    seconds_left: float | None = None
    note: str = ""
    stage: str = ""


Tell = Callable[[Progress], None]


class Learner(Protocol[_contra]):
    """A model to train, with its loss on examples."""

    def trained(self) -> Mapping[str, Any]:
        """Return the trainable parameters by name."""
        ...

    def tokens(self, example: _contra) -> int:
        """Return the length of an example."""
        ...

    def weight(self, example: _contra) -> int:
        """Return the number of targets of an example."""
        ...

    def loss(self, examples: Sequence[_contra]) -> Any:
        """Return the summed loss of all targets as a differentiable tensor."""
        ...


def require() -> Any:
    """Return PyTorch; raises UsageError if the extra is not installed."""
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise UsageError(
            f"Training needs {', '.join(missing)}.", fix="pip install 'ecoshell[train]'"
        )
    return import_module("torch")


def device() -> Any:
    """Return the first CUDA GPU, or the CPU."""
    torch = require()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision() -> Any:
    """Return bfloat16, or float32 on a CPU that only emulates bfloat16."""
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
    """Train from the folder's checkpoint, if any, to the end of the recipe; returns the curve's rows.

    Raises UsageError for the folder of another run, StoreError if the last checkpoint cannot be written, and
    ModelBroken if a single example exceeds the memory.
    """
    torch = require()
    run = _Run(torch, learner, recipe, folder, _digest(recipe, examples))
    folder.mkdir(parents=True, exist_ok=True)
    rows = run.resume()
    start_time, first = time.monotonic(), run.step

    def report(note: str = "") -> None:
        done = run.step - first
        seconds_left = (
            (time.monotonic() - start_time) / done * (recipe.steps - run.step) if done else None
        )
        row = rows[-1] if rows else {}
        tell(
            Progress(
                run.step, recipe.steps, row.get("loss"), row.get("validation"), seconds_left, note
            )
        )

    report(f"Continuing from step {first}." if first else "")
    with (folder / CURVE).open("a", encoding="utf-8") as curve:
        while run.step < recipe.steps:
            batch = _batch(examples, recipe, run.step)
            row: dict[str, Any] = {"step": run.step + 1, "tokens": sum(map(learner.tokens, batch))}
            row["rate"] = recipe.rate_at(run.step)
            row["loss"] = run.learn(batch, report)
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
                        kept="The previous checkpoint is unchanged.",
                        fix=remedy(error, "Choose another --out and train again."),
                    ) from error
                report(
                    f"The checkpoint cannot be written ({error.strerror}); the previous one is unchanged."
                )
            report()
    if find_spec("matplotlib"):
        with suppress(OSError):
            (folder / PICTURE).write_bytes(picture(rows))
    return rows


def estimate(
    learner: Learner[E], examples: Sequence[E], recipe: Recipe, *, numbers: int
) -> Estimate:
    """Estimate a run with `numbers` trainable parameters; measures the speed with a part of a batch."""
    lengths = (
        learner.tokens(example)
        for step in range(recipe.steps)
        for example in _batch(examples, recipe, step)
    )
    tokens = sum(lengths)
    hours = None
    if all(find_spec(name) for name in _LIBRARIES):
        run = _Run(require(), learner, recipe, Path(), "")
        sample = next(_portions(learner, _batch(examples, recipe, 0), recipe.tokens))
        run.derive(sample, 1)  # The first pass is slower.
        start_time = time.monotonic()
        run.derive(sample, 1)
        hours = (time.monotonic() - start_time) / sum(map(learner.tokens, sample)) * tokens / 3600
    return Estimate(
        tokens, recipe.steps, hours, numbers * _BYTES_PER_NUMBER * _NUMBERS_PER_PARAMETER / 1e6
    )


class _Run:
    """The state of a run: learner, optimizer and step."""

    def __init__(
        self, torch: Any, learner: Learner[Any], recipe: Recipe, folder: Path, digest: str
    ) -> None:
        self.step = 0
        self._torch, self._learner, self._recipe, self._folder, self._digest = (
            torch,
            learner,
            recipe,
            folder,
            digest,
        )
        torch.manual_seed(recipe.seed)
        self._trained = dict(learner.trained())
        self._optimizer = torch.optim.AdamW(
            self._trained.values(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay
        )
        self._kind = next(iter(self._trained.values())).device.type
        self._room = recipe.tokens

    def learn(self, examples: Sequence[Any], note: Callable[[str], None]) -> float:
        """Run one optimizer step and return the mean loss; halves the forward passes if memory is short."""
        weight = sum(map(self._learner.weight, examples))
        while True:
            self._torch.manual_seed(self._recipe.seed * 1_000_003 + self.step)
            self._optimizer.zero_grad(set_to_none=True)
            try:
                loss = sum(
                    self.derive(few, weight)
                    for few in _portions(self._learner, examples, self._room)
                )
                break
            except (MemoryError, RuntimeError) as error:  # PyTorch raises a RuntimeError.
                if not isinstance(error, MemoryError) and not any(
                    word in str(error) for word in _MEMORY_ERRORS
                ):
                    raise
                if self._room < max(map(self._learner.tokens, examples)):
                    raise ModelBroken(
                        "A single example exceeds the memory.", fix="Train a smaller model."
                    ) from error
                self._room //= 2
            self._optimizer.zero_grad(set_to_none=True)
            if self._kind == "cuda":
                self._torch.cuda.empty_cache()
            note(f"Memory is short: using at most {self._room} tokens per forward pass.")
        self._torch.nn.utils.clip_grad_norm_(self._trained.values(), 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.rate_at(self.step)
        self._optimizer.step()
        return loss

    def derive(self, examples: Sequence[Any], weight: int) -> float:
        """Add the gradients of some examples and return their part of the mean loss."""
        with self._autocast():
            loss = self._learner.loss(examples) / max(1, weight)
        loss.backward()
        return float(loss.detach())

    def _autocast(self) -> Any:
        short = precision()
        return self._torch.autocast(self._kind, short, enabled=short is self._torch.bfloat16)

    def validate(self, examples: Sequence[Any]) -> float | None:
        """Return the mean loss of validation examples, None without any."""
        weight = sum(map(self._learner.weight, examples))
        if not weight:
            return None
        with self._torch.no_grad(), self._autocast():
            portions = _portions(self._learner, examples, self._room)
            return sum(float(self._learner.loss(few)) for few in portions) / weight

    def save(self) -> None:
        """Replace the checkpoint atomically; raises OSError."""
        trained = {name: parameter.detach().cpu() for name, parameter in self._trained.items()}
        state = {"run": self._digest, "step": self.step, "room": self._room, "trained": trained}
        buffer = io.BytesIO()  # PyTorch's own error does not mention a full disk.
        self._torch.save({**state, "optimizer": self._optimizer.state_dict()}, buffer)
        with replacement(self._folder / CHECKPOINT) as file:
            file.write(buffer.getbuffer())

    def resume(self) -> list[dict[str, Any]]:
        """Load the checkpoint, if any; returns the rows of the curve up to it and deletes later ones."""
        file, curve = self._folder / CHECKPOINT, self._folder / CURVE
        if file.is_file():
            state = self._torch.load(file, map_location="cpu", weights_only=True)
            if state["run"] != self._digest:
                raise UsageError(
                    f"{self._folder} contains a run with other examples or options.",
                    fix="Choose another --out or remove the folder.",
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
    """Return the examples of a step; each epoch has its own order."""
    batch: list[E] = []
    for position in range(step * recipe.batch, (step + 1) * recipe.batch):
        epoch, index = divmod(position, len(examples))
        batch.append(examples[_order(len(examples), recipe.seed, epoch)[index]])
    return batch


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(count: int, seed: int, epoch: int) -> list[int]:
    key = (count, seed, epoch)
    if key not in _orders:
        if len(_orders) > 1:
            _orders.clear()
        _orders[key] = random.Random(f"{seed} {epoch}").sample(range(count), count)
    return _orders[key]


def _portions(learner: Learner[E], examples: Sequence[E], room: int) -> Iterator[list[E]]:
    """Yield groups of examples of similar length, with at most `room` tokens including padding."""
    portion: list[E] = []
    for example in sorted(examples, key=learner.tokens):
        if portion and learner.tokens(example) * (len(portion) + 1) > room:
            yield portion
            portion = []
        portion.append(example)
    if portion:
        yield portion


def _digest(recipe: Recipe, examples: Sequence[Any]) -> str:
    """Return a hash that identifies a run, without the checkpoint interval and the size of passes."""
    same = replace(recipe, every=1, tokens=1)
    digest = hashlib.sha256(json.dumps(asdict(same)).encode())
    for example in examples:
        digest.update(repr(example).encode())
    return digest.hexdigest()


# -- curves


def curve_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's curve; skips an incomplete line of a killed process."""
    rows: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (folder / CURVE).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows


def plotted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves as text; empty without plotille or with fewer than two rows."""
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
    """Return the curves as a PNG image; needs matplotlib."""
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
