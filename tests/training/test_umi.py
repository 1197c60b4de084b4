"""Adapters trained with PyTorch work in llama.cpp; needs PyTorch."""

import json
import shutil
from pathlib import Path

import pytest
from logprobs import logprobs

from ecoshell.cli import main
from ecoshell.errors import ModelBroken, UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.gguf import check_adapter, header
from ecoshell.models.local import LocalModel
from ecoshell_train.examples import Example, joined
from ecoshell_train.export import read_adapter, write_base
from ecoshell_train.trainer import Recipe, train
from ecoshell_train.umi import Adapter

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
pytest.importorskip("transformers", reason="the extra `train` is not installed")
pytest.importorskip("llama_cpp", reason="the extra `local` is not installed")

PREFIX = "The harbour master keeps a list of boats, and every morning "
TARGETS = ("he counts them twice.", "the gulls steal it.", '{"name": "list_files"', "42 42 42")


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    """An adapter with random weights that change the output clearly."""
    adapter = Adapter(embedded_path(), 4, 1, [])
    with torch.no_grad():
        torch.manual_seed(5)
        for name, value in adapter.trained().items():
            if name.endswith(".b"):
                value.copy_(torch.randn_like(value) * 0.05)
    return adapter


def tokens(text: str, *, start: bool = False) -> tuple[int, ...]:
    return tuple(LocalModel(embedded_path())._runtime.vocabulary().tokens(text, start=start))


def test_llama_cpp_and_pytorch_agree_on_an_adapter(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="single")
    check_adapter(file, embedded_path())
    assert header(file)["ecoshell.trained_for"] == "single"
    prefix = tokens(PREFIX, start=True)
    with torch.no_grad():
        ours = [
            -float(adapter.loss([Example("single", prefix, tokens(target))])) for target in TARGETS
        ]
    replies = [tokens(target) for target in TARGETS]
    theirs = logprobs(embedded_path(), prefix, replies, file)
    base = logprobs(embedded_path(), prefix, replies, None)
    assert max(abs(adapted - plain) for adapted, plain in zip(theirs, base, strict=True)) > 2
    for actual, expected, target in zip(ours, theirs, TARGETS, strict=True):
        assert actual == pytest.approx(expected, abs=0.25 + 0.02 * abs(expected)), target


def test_exported_adapter_can_be_read_back(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="single")
    matrices = read_adapter(embedded_path(), file, 4)
    assert matrices.keys() == adapter.trained().keys()
    for name, value in adapter.trained().items():
        assert torch.allclose(value, torch.tensor(matrices[name]).float(), atol=2e-3), name
    with pytest.raises(UsageError, match="not an adapter of rank 8"):
        read_adapter(embedded_path(), file, 8)
    with pytest.raises(UsageError, match="not an adapter of rank 4"):
        read_adapter(embedded_path(), embedded_path(), 4)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="cannot be read as an adapter"):
        read_adapter(embedded_path(), tmp_path / "broken.gguf", 4)


def test_adapter_is_small_and_bound_to_its_base(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="planner")
    assert file.stat().st_size < 5_000_000
    other = tmp_path / "other.gguf"
    shutil.copyfile(embedded_path(), other)
    content = bytearray(other.read_bytes())
    start = content.index(b"general.architecture") + len("general.architecture") + 12
    content[start : start + 5] = b"qwen2"
    other.write_bytes(content)
    with pytest.raises(ModelBroken, match="architecture llama"):
        check_adapter(file, other)


def test_shared_prefix_does_not_change_the_loss(adapter) -> None:
    start = tokens(PREFIX * 8, start=True)
    examples = [
        Example("single", (*start, *tokens(f" {word}")), tokens(TARGETS[0]))
        for word in ("one", "another")
    ]
    with_prefix = Adapter(embedded_path(), 4, 1, examples)
    with_prefix.__dict__["_model"] = adapter._model
    assert with_prefix._shared[: len(start)] == start
    with torch.no_grad():
        assert float(with_prefix.loss(examples)) == pytest.approx(
            float(adapter.loss(examples)), rel=0.02
        )


def test_joined_examples_have_the_sum_of_their_losses(adapter) -> None:
    start, first, then = tokens(PREFIX, start=True), tokens(TARGETS[0]), tokens(" And then?")
    examples = [
        Example("single", start, first),
        Example("single", (*start, *first, *then), tokens(TARGETS[1])),
    ]
    [together] = joined(examples)
    assert adapter.weight(together) == sum(map(adapter.weight, examples))
    with torch.no_grad():
        separate = sum(float(adapter.loss([example])) for example in examples)
        assert float(adapter.loss([together])) == pytest.approx(separate, rel=0.02)


def test_adapter_learns_an_example(tmp_path) -> None:
    examples = [Example("single", tokens("The code of the door is", start=True), tokens(" 7319."))]
    learner = Adapter(embedded_path(), 2, 1, examples)
    rows = train(
        learner,
        examples,
        [],
        Recipe(steps=6, batch=1, rate=0.01, every=6),
        tmp_path,
        lambda _: None,
    )
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert learner.numbers == sum(value.numel() for value in learner.trained().values())


@pytest.fixture
def folder(tmp_path):
    """An untrained Hugging Face model with the architecture and the tokens of the embedded one."""
    folder, base = tmp_path / "tiny-model", embedded_path()
    library = pytest.importorskip("transformers")
    library.AutoTokenizer.from_pretrained(str(base.parent), gguf_file=base.name).save_pretrained(
        folder
    )
    torch.manual_seed(1)
    config = library.LlamaConfig(
        vocab_size=49152,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.3,
    )
    library.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_converted_hugging_face_model_agrees_with_pytorch(folder, tmp_path) -> None:
    file = tmp_path / "converted.gguf"
    write_base(folder, file)
    theirs = logprobs(file, tokens(PREFIX, start=True), [tokens(target) for target in TARGETS])
    library = pytest.importorskip("transformers")
    model = library.AutoModelForCausalLM.from_pretrained(folder)
    for target, expected in zip(TARGETS, theirs, strict=True):
        prefix = tokens(PREFIX, start=True)
        ids = torch.tensor([[*prefix, *tokens(target)]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(prefix) - 1 : -1].log_softmax(-1)
        ours = float(logits.gather(1, ids[0, len(prefix) :, None]).sum())
        assert ours == pytest.approx(expected, rel=0.03, abs=0.3), target


@pytest.mark.parametrize("change", [{"model_type": "gpt2"}, {"model_type": "nothing"}])
def test_folder_with_another_architecture_is_refused(folder, tmp_path, change) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UsageError, match="tiny-model contains"):
        write_base(folder, tmp_path / "converted.gguf")


def test_hugging_face_folder_can_be_trained(folder, tmp_path, capsys) -> None:
    common = [
        "train",
        "umi",
        "--base",
        str(folder),
        "--only",
        "single",
        "--tasks",
        "2",
        "--held",
        "1",
        "--json",
    ]
    out = tmp_path / "run"
    assert main([*common, "--steps", "2", "--batch", "1", "--out", str(out)]) == 0
    results = json.loads(capsys.readouterr().out)
    check_adapter(Path(results["single"]), out / "tiny-model.gguf")
    card = Path(results["card"]).read_text(encoding="utf-8")
    assert "2 tasks (seed " in card
    assert "| single | " in card
    assert "{" not in card


def test_run_starts_from_an_adapter_and_learns_from_trajectories(folder, tmp_path, capsys) -> None:
    def trained(out: str, *more: str) -> dict[str, str]:
        numbers = ["--steps", "1", "--batch", "1", "--tasks", "2", "--held", "1", "--rank", "4"]
        options = [
            "--base",
            str(folder),
            "--only",
            "single",
            *numbers,
            "--out",
            str(tmp_path / out),
            *more,
            "--json",
        ]
        assert main(["train", "umi", *options]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    schema = {
        "name": "forecast",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {}},
    }
    step = {"decision": "call", "tool": "forecast", "arguments": {}, "observation": "rain"}
    task = {
        "id": "task-0",
        "tools": [schema],
        "query": "Will it rain?",
        "steps": [step, {"decision": "finish"}],
    }
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(f"{json.dumps(task)}\n")
    first = trained("first", "--rate", "0.05")
    again = trained(
        "again", "--rate", "1e-9", "--begin", first["single"], "--trajectories", str(recorded)
    )
    base = tmp_path / "first" / "tiny-model.gguf"
    matrices = [read_adapter(base, Path(results["single"]), 4) for results in (first, again)]
    assert matrices[0].keys() == matrices[1].keys()
    assert all((matrices[1][name] == value).all() for name, value in matrices[0].items())
    assert any(value.any() for name, value in matrices[0].items() if name.endswith(".b"))
    assert len((tmp_path / "again" / "trajectories.jsonl").read_text().splitlines()) == 1
    card = Path(again["card"]).read_text(encoding="utf-8")
    assert "recorded.jsonl" in card
    assert "single.gguf" in card
    with pytest.raises(AssertionError, match="not an adapter of rank 4"):
        trained("other", "--begin", "embedded")
