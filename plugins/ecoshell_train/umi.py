"""GLPFT (SPEC §4): train one adapter on whole trajectories, then one adapter per role from it.

Each example is one prompt of the shell to one role; only the role's reply contributes to the loss.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ecoshell.errors import StoreError, UsageError
from ecoshell.models.embedded import BASE, embedded_adapter
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.gguf import check_file, header, tensor_shapes
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import LOCAL, local_files
from ecoshell.options import Options
from ecoshell.paths import remedy
from ecoshell_train import sessions, trainer, trajectories
from ecoshell_train.examples import ROLES, Example, examples, joined
from ecoshell_train.export import MODULES, architecture, read_adapter, write_adapter, write_base
from ecoshell_train.trainer import Estimate, Progress, Recipe, Tell

RECIPE = Recipe(steps=400, batch=16, rate=1.5e-3, tokens=1024, every=25)
SINGLE, SHARED = "single", "roles"
"""Names of the adapters for a single model and for one model in all roles."""
_TASKS, _HELD, _RANK = 3400, 40, 8
_SAMPLE_TASKS = 12
"""Tasks that are played for an estimate."""
_ALPHA_PER_RANK = 2
_MIN_SHARED_TOKENS = 64
"""Length of a common prefix from which computing it separately pays."""
_PROMPTS_PER_OUTLIER = 100
"""One in so many prompts may have another prefix, at each end of their sorted order."""

Mode = Literal["single", "umi"]
Stage = tuple[str, tuple[str, ...], str]
"""An adapter's name, the roles of its examples, and the adapter it starts from (empty for none)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this method."""
    bases = "embedded (default), local:FILE.gguf, or a Hugging Face folder"
    parser.add_argument("--base", default=EMBEDDED, metavar="NAME", help=bases)
    parser.add_argument(
        "--tasks", type=int, default=_TASKS, metavar="N", help=f"training tasks (default: {_TASKS})"
    )
    parser.add_argument(
        "--from-sessions", action="store_true", help="also learn from your sessions, without asking"
    )
    recorded = "also learn from the tasks in these trajectory files that are not held out (docs/benchmarks.md)"
    parser.add_argument(
        "--trajectories", type=Path, nargs="+", default=(), metavar="FILE", help=recorded
    )
    start = "start from an adapter of this base and rank (embedded: the one in use)"
    parser.add_argument("--begin", metavar="FILE", help=start)
    parser.add_argument(
        "--held", type=int, default=_HELD, metavar="N", help=f"validation tasks (default: {_HELD})"
    )
    parser.add_argument(
        "--rank", type=int, choices=(2, 4, 8, 16), default=_RANK, help=f"(default: {_RANK})"
    )
    parser.add_argument(
        "--registration",
        choices=("auto", "names"),
        default="auto",
        help="how tools appear in prompts (default: auto)",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--only", choices=(SINGLE,), help="only the first stage: an adapter for one model"
    )
    choice.add_argument(
        "--without-global",
        action="store_true",
        help="role adapters without the first stage (ablation)",
    )
    choice.add_argument(
        "--one-adapter", action="store_true", help="one adapter for all roles (ablation)"
    )


def estimate(args: argparse.Namespace, recipe: Recipe) -> Estimate:
    """Estimate all stages from the examples of a few tasks."""
    with TemporaryDirectory() as folder:
        base, local = _base(args.base, args.out or Path(folder))
        _start_adapter(args)
        sample = examples(
            local, min(args.tasks, _SAMPLE_TASKS), recipe.seed, "train", _played(args)
        )
        note = ""
        if args.from_sessions:
            from_sessions = sessions.session_examples(local, _played(args))
            sample += from_sessions.examples[
                :: max(1, args.tasks // _SAMPLE_TASKS)
            ]  # In proportion to the tasks.
            note = from_sessions.summary()
        if args.trajectories:
            every = max(1, args.tasks // _SAMPLE_TASKS)
            sample += trajectories.trajectory_examples(
                local, args.trajectories, _played(args), every=every
            )
        _require(sample, note)
        learner, total = Adapter(base, args.rank, recipe.seed, sample), Estimate(0, 0, 0.0, 0.0)
        for _, roles, _ in _stages(args):
            stage = trainer.estimate(learner, _of(sample, roles), recipe, numbers=learner.numbers)
            adapter_mb = learner.numbers * 2 / 1e6  # Two bytes per number.
            total += replace(stage, disk_mb=stage.disk_mb + adapter_mb)
    return replace(total, note=note)


def train(args: argparse.Namespace, recipe: Recipe, tell: Tell) -> dict[str, Any]:
    """Train and export; returns the adapter files by name and the curve of the first.

    Raises UsageError, ModelError and StoreError.
    """
    trainer.require()
    out: Path = args.out
    base, local = _base(args.base, out)
    start = _start_adapter(args)
    matrices = None if start is None else read_adapter(base, start, args.rank)
    seed, ways = recipe.seed, _played(args)
    tell(
        Progress(
            0,
            args.tasks,
            note=f"Playing {args.tasks} tasks, or reading them from {out}.",
            stage="tasks",
        )
    )
    training = examples(local, args.tasks, seed, "train", ways, out / "tasks.jsonl")
    validation = examples(local, args.held, seed, "held", ways, out / "held.jsonl")
    results: dict[str, Any] = {}
    if args.from_sessions:
        from_sessions = sessions.session_examples(local, ways, out / "sessions.jsonl")
        training += from_sessions.examples
        results["sessions"] = from_sessions.summary()
        tell(Progress(args.tasks, args.tasks, note=results["sessions"], stage="tasks"))
    if args.trajectories:
        training += trajectories.trajectory_examples(
            local, args.trajectories, ways, out / "trajectories.jsonl"
        )
    _require(training, results.get("sessions", ""))
    tell(Progress(args.tasks, args.tasks, stage="tasks"))
    states: dict[str, Mapping[str, Any]] = {}
    figures: list[str] = []
    for name, roles, start_name in _stages(args):
        learner = Adapter(base, args.rank, seed, training)
        previous = states[start_name] if start_name else matrices
        if previous is not None:
            torch = trainer.require()
            with torch.no_grad():
                for part, value in learner.trained().items():
                    value.copy_(torch.as_tensor(previous[part]))
        rows = trainer.train(
            learner,
            _of(training, roles),
            _of(validation, roles),
            recipe,
            out / name,
            lambda progress, name=name: tell(replace(progress, stage=name)),
        )
        states[name] = learner.trained()
        results.setdefault("curve", rows)
        file = out / f"{name}.gguf"
        learner.export(file, role=name)
        results[name] = str(file)
        counted, last = len(_of(training, roles)), rows[-1]
        figures.append(
            f"| {name} | {counted:,} | {last['step']:,} | {last['loss']:.3f} | {last.get('validation', 0):.3f} |"
        )
    card = out / "model-card.md"
    try:
        card.write_text(
            _card(args, recipe, base, figures, results.get("sessions", "")), encoding="utf-8"
        )
    except OSError as error:
        raise StoreError(
            f"{card} cannot be written: {error.strerror}.",
            fix=remedy(error, "Choose another --out."),
        ) from error
    results["card"] = str(card)
    return results


def _start_adapter(args: argparse.Namespace) -> Path | None:
    """Return the file of the adapter to start from, if any; raises UsageError."""
    if not args.begin:
        return None
    file = embedded_adapter() if args.begin == EMBEDDED else Path(args.begin)
    if file is None:
        raise UsageError("The embedded model has no adapter.", fix="Give a file or remove --begin.")
    if not file.is_file():
        raise UsageError(
            f"{file} does not exist.",
            fix="Give a file that ecoshell train umi wrote, or remove --begin.",
        )
    return file


def _card(
    args: argparse.Namespace,
    recipe: Recipe,
    base: Path,
    figures: Sequence[str],
    sessions_summary: str,
) -> str:
    """Return the model card: base, data, recipe and losses."""
    metadata = header(base)
    recorded = ", ".join(file.name for file in args.trajectories)
    name, licence = (
        metadata.get("general.name", base.name),
        metadata.get("general.license", "unknown"),
    )
    fields = {
        "name": name,
        "base": f"{name} ({metadata.get('general.size_label', 'of unknown size')}, licence {licence})",
        "rank": args.rank,
        "alpha": args.rank * _ALPHA_PER_RANK,
        "tasks": f"{args.tasks:,} tasks (seed {recipe.seed}, {args.held} more for validation)",
        "recorded": f"\nPlus trajectories that are not held out: {recorded}." if recorded else "",
        "begun": Path(args.begin).name if args.begin else "nothing",
        "sessions": f"\n{sessions_summary} The adapters may repeat their contents."
        if sessions_summary
        else "",
        "recipe": f"{recipe.steps} steps of {recipe.batch} examples, AdamW, rate {recipe.rate:g} falling to a tenth",
        "figures": "\n".join(figures),
    }
    return (files("ecoshell_train") / "model-card.md").read_text(encoding="utf-8").format(**fields)


def _stages(args: argparse.Namespace) -> Iterator[Stage]:
    if args.without_global:
        yield from ((role, (role,), "") for role in ROLES)
        return
    yield SINGLE, (SINGLE,), ""
    if args.one_adapter:
        yield SHARED, ROLES, SINGLE
    elif not args.only:
        yield from ((role, (role,), SINGLE) for role in ROLES)


def _played(args: argparse.Namespace) -> list[Options]:
    """Return the options with which tasks are played."""
    modes: tuple[Mode, ...] = (
        (SINGLE,) if args.only else ("umi",) if args.without_global else (SINGLE, "umi")
    )
    return [Options(mode=mode, registration=args.registration) for mode in modes]


def _of(examples: Sequence[Example], roles: Sequence[str]) -> list[Example]:
    return joined(example for example in examples if example.role in roles)


def _require(examples: Sequence[Example], note: str) -> None:
    if not examples:
        fix = "Use --tasks above 0, or --from-sessions after sessions with a remote model."
        raise UsageError(f"No training examples. {note}".strip(), fix=fix)


def _base(name: str, folder: Path) -> tuple[Path, LocalModel]:
    """Return the file of a base, and the model that renders prompts.

    A Hugging Face model is converted once, into `folder`. Raises UsageError, StoreError and ModelError.
    """
    if (Path(name) / "config.json").is_file():
        trainer.require()
        file = folder / f"{Path(name).resolve().name}.gguf"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_base(Path(name), file)
        name = f"{LOCAL}{file}"
    local = local_files(BASE if name == EMBEDDED else name)
    if local is None or local.adapter is not None:
        fix = "Use embedded, local:FILE.gguf, or a Hugging Face folder."
        raise UsageError(f"{name} cannot be trained.", fix=fix)
    check_file(local.base)
    architecture(local.base)
    return local.base, LocalModel(local.base, name=name)


class Adapter:
    """A `Learner` of a LoRA adapter for all matrices of a GGUF base; loads the model on first use.

    The common prefix of prompts is computed once, without gradients.
    """

    def __init__(self, base: Path, rank: int, seed: int, examples: Sequence[Example]) -> None:
        self._base, self._rank, self._seed = base, rank, seed
        self._shared = _common_prefix([example.prompt for example in examples])

    @property
    def numbers(self) -> int:
        """The number of trainable parameters."""
        names = tuple(f".{name}.weight" for name in MODULES.values())
        shapes = tensor_shapes(self._base).items()
        return sum(self._rank * sum(shape) for name, shape in shapes if name.endswith(names))

    def tokens(self, example: Example) -> int:
        return len(example.prompt) - self._start([example]) + len(example.reply)

    def weight(self, example: Example) -> int:
        return sum(end - begin for begin, end in example.learned)

    def trained(self) -> Mapping[str, Any]:
        return {
            name: value
            for name, value in self._model.model.named_parameters()
            if value.requires_grad
        }

    def loss(self, examples: Sequence[Example]) -> Any:
        torch = trainer.require()
        model, device = self._model, self._model.device
        start = self._start(examples)
        self._read_shared(self._shared[:start])
        rows = [(*example.prompt[start:], *example.reply) for example in examples]
        longest = max(map(len, rows))
        ids = torch.tensor(
            [(*row, *[0] * (longest - len(row))) for row in rows], device=device
        )  # Padding follows the text, so that no token attends to it.
        places = torch.arange(start, start + longest, device=device)[None]
        states = model.model(ids, position_ids=places, use_cache=False).last_hidden_state
        spans = [
            (row, begin - start, end - start)
            for row, example in enumerate(examples)
            for begin, end in example.learned
        ]
        predicting = torch.cat([states[row, begin - 1 : end - 1] for row, begin, end in spans])
        labels = torch.cat([ids[row, begin:end] for row, begin, end in spans])
        return torch.nn.functional.cross_entropy(
            model.lm_head(predicting).float(), labels, reduction="sum"
        )

    def _start(self, examples: Sequence[Example]) -> int:
        """Return the length of the shared prefix, or 0 if an example has another one."""
        limit = len(self._shared)
        return limit if all(example.prompt[:limit] == self._shared for example in examples) else 0

    def _read_shared(self, tokens: Sequence[int]) -> None:
        """Compute keys and values of the shared prefix, once per state of the adapter."""
        torch, model = trainer.require(), self._model
        state = (tuple(tokens), next(iter(self.trained().values()))._version)
        if getattr(model, "shared", None) == state:
            return
        layers = [layer.self_attn for layer in model.model.layers]
        for attention in layers:
            attention.past = None
        if tokens:
            with torch.no_grad():
                model.model(torch.tensor([tokens], device=model.device), use_cache=False)
            for attention in layers:
                attention.past = attention.last
        model.shared = state

    def export(self, file: Path, *, role: str) -> None:
        """Write the adapter as a GGUF file; raises StoreError."""
        arrays = {
            name: value.detach().float().cpu().numpy() for name, value in self.trained().items()
        }
        write_adapter(arrays, self._base, file, alpha=self._rank * _ALPHA_PER_RANK, role=role)

    @cached_property
    def _model(self) -> Any:
        """The base model with the adapter."""
        os.environ.setdefault("TQDM_DISABLE", "1")  # The command displays its own bar.
        torch, library = trainer.require(), import_module("transformers")
        library.utils.logging.disable_progress_bar()
        options: dict[str, Any] = {"gguf_file": self._base.name, "dtype": trainer.precision()}
        library.AttentionInterface.register("shared", _attend)
        options["attn_implementation"] = "shared"
        if hasattr(library, "GgufConfig"):  # Packed weights are many times slower.
            options["quantization_config"] = library.GgufConfig(dequantize=True)
        model = library.AutoModelForCausalLM.from_pretrained(str(self._base.parent), **options)
        model.requires_grad_(False)
        torch.manual_seed(self._seed)
        for layer in model.model.layers:
            for module in MODULES:
                inside, name = module.split(".")
                parent = getattr(layer, inside)
                setattr(parent, name, _lora(torch, getattr(parent, name), self._rank))
        return model.to(trainer.device())


def _attend(
    module: Any, query: Any, key: Any, value: Any, _: Any, scaling: float, **__: Any
) -> tuple[Any, None]:
    """Attention of the rows of a batch to themselves and to their shared prefix.

    PyTorch's own function would copy the prefix for each row and take twice as long on a CPU; without a prefix it is
    faster.
    """
    torch = trainer.require()
    rows, heads, long, size = query.shape
    groups = key.shape[1]
    module.last = (key[0].detach(), value[0].detach())
    if not (past := module.past):
        attend = torch.nn.functional.scaled_dot_product_attention
        visible = attend(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return visible.transpose(1, 2), None
    with torch.autocast(query.device.type, enabled=False):
        query = (query * scaling).reshape(rows, groups, -1, size)
        later = (
            torch.ones(long, long, dtype=torch.bool, device=query.device)
            .triu(1)
            .repeat(heads // groups, 1)
        )
        scores = (query @ key.transpose(-1, -2)).masked_fill(later, -torch.inf)
        together = query.transpose(0, 1).reshape(groups, -1, size) @ past[0].transpose(-1, -2)
        scores = torch.cat((together, scores.transpose(0, 1).reshape(groups, -1, long)), -1)
        together, own = scores.softmax(-1).split((past[0].shape[1], long), -1)
        visible = own.reshape(groups, rows, -1, long).transpose(0, 1) @ value
        visible = visible + (together @ past[1]).reshape(groups, rows, -1, size).transpose(0, 1)
    return visible.reshape(rows, heads, long, size).transpose(1, 2), None


def _lora(torch: Any, linear: Any, rank: int) -> Any:
    """Add the product of two narrow matrices to a linear layer; the second one starts at zero."""

    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.linear = linear
            self.a = torch.nn.Parameter(
                torch.randn(rank, linear.in_features) / linear.in_features**0.5
            )
            self.b = torch.nn.Parameter(torch.zeros(linear.out_features, rank))

        def forward(self, x: Any) -> Any:
            narrow = torch.nn.functional.linear(x, self.a.to(x.dtype))
            return self.linear(x) + torch.nn.functional.linear(
                narrow * _ALPHA_PER_RANK, self.b.to(x.dtype)
            )

    return Adapted()


def _common_prefix(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common prefix of nearly all prompts, shorter than the shortest of them."""
    if not prompts:
        return ()
    inner = sorted(prompts)[
        len(prompts) // _PROMPTS_PER_OUTLIER : len(prompts) - len(prompts) // _PROMPTS_PER_OUTLIER
    ]
    first, last = inner[0], inner[-1]  # All others are sorted between them.
    longest = min(map(len, inner)) - 1
    same = next((at for at in range(longest) if first[at] != last[at]), longest)
    return first[:same] if same >= _MIN_SHARED_TOKENS else ()
