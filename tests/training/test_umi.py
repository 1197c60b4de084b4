"""Adapters: what PyTorch learns is what llama.cpp does with the file; needs PyTorch, and is skipped without it."""

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
from ecoshell_train.data import Example, joined
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
    """An adapter that changes much, as if it had learned."""
    made = Adapter(embedded_path(), 4, 1, [])
    with torch.no_grad():
        torch.manual_seed(5)
        for name, value in made.trained().items():
            if name.endswith(".b"):
                value.copy_(torch.randn_like(value) * 0.05)
    return made


def tokens(text: str, *, start: bool = False) -> tuple[int, ...]:
    return tuple(LocalModel(embedded_path())._runtime.vocabulary().tokens(text, start=start))


def test_llama_cpp_with_the_adapter_says_what_pytorch_says(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="single")
    check_adapter(file, embedded_path())
    assert header(file)["ecoshell.trained_for"] == "single"
    prefix = tokens(PREFIX, start=True)
    with torch.no_grad():
        ours = [-float(adapter.loss([Example("single", prefix, tokens(target))])) for target in TARGETS]
    meant = [tokens(target) for target in TARGETS]
    theirs, base = (logprobs(embedded_path(), prefix, meant, one) for one in (file, None))
    assert max(abs(one - other) for one, other in zip(theirs, base, strict=True)) > 2
    for one, other, target in zip(ours, theirs, TARGETS, strict=True):
        assert one == pytest.approx(other, abs=0.25 + 0.02 * abs(other)), target


def test_an_adapter_that_was_written_is_read_as_it_was_learned(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="single")
    found = read_adapter(embedded_path(), file, 4)
    assert found.keys() == adapter.trained().keys()
    for name, value in adapter.trained().items():
        assert torch.allclose(value, torch.tensor(found[name]).float(), atol=2e-3), name
    with pytest.raises(UsageError, match="no adapter of rank 8"):
        read_adapter(embedded_path(), file, 8)
    with pytest.raises(UsageError, match="no adapter of rank 4"):
        read_adapter(embedded_path(), embedded_path(), 4)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="cannot be read as an adapter"):
        read_adapter(embedded_path(), tmp_path / "broken.gguf", 4)


def test_an_adapter_is_small_and_keeps_to_its_base(adapter, tmp_path) -> None:
    file = tmp_path / "adapter.gguf"
    adapter.export(file, role="planner")
    assert file.stat().st_size < 5_000_000
    other = tmp_path / "other.gguf"
    shutil.copyfile(embedded_path(), other)
    data_of = bytearray(other.read_bytes())
    place = data_of.index(b"general.architecture") + len("general.architecture") + 12
    data_of[place : place + 5] = b"qwen2"
    other.write_bytes(data_of)
    with pytest.raises(ModelBroken, match="architecture llama"):
        check_adapter(file, other)


def test_what_all_prompts_begin_with_changes_no_loss_but_by_rounding(adapter) -> None:
    start = tokens(PREFIX * 8, start=True)
    examples = [Example("single", (*start, *tokens(f" {word}")), tokens(TARGETS[0])) for word in ("one", "another")]
    apart = Adapter(embedded_path(), 4, 1, examples)
    apart.__dict__["_model"] = adapter._model
    assert apart._shared[: len(start)] == start
    with torch.no_grad():
        assert float(apart.loss(examples)) == pytest.approx(float(adapter.loss(examples)), rel=0.02)


def test_what_goes_on_where_another_ended_has_the_losses_of_both(adapter) -> None:
    start, first, then = tokens(PREFIX, start=True), tokens(TARGETS[0]), tokens(" And then?")
    examples = [Example("single", start, first), Example("single", (*start, *first, *then), tokens(TARGETS[1]))]
    [together] = joined(examples)
    assert adapter.weight(together) == sum(map(adapter.weight, examples))
    with torch.no_grad():
        apart = sum(float(adapter.loss([one])) for one in examples)
        assert float(adapter.loss([together])) == pytest.approx(apart, rel=0.02)


def test_an_adapter_learns_what_it_is_shown(tmp_path) -> None:
    examples = [Example("single", tokens("The code of the door is", start=True), tokens(" 7319."))]
    learner = Adapter(embedded_path(), 2, 1, examples)
    rows = train(learner, examples, [], Recipe(steps=6, batch=1, rate=0.01, every=6), tmp_path, lambda _: None)
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert learner.numbers == sum(value.numel() for value in learner.trained().values())


@pytest.fixture
def folder(tmp_path):
    """A model of Hugging Face that nobody trained, of the kind and with the tokens of the embedded one."""
    folder, base = tmp_path / "tiny-model", embedded_path()
    library = pytest.importorskip("transformers")
    library.AutoTokenizer.from_pretrained(str(base.parent), gguf_file=base.name).save_pretrained(folder)
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


def test_a_folder_of_hugging_face_says_as_a_file_what_it_says_in_pytorch(folder, tmp_path) -> None:
    file = tmp_path / "made.gguf"
    write_base(folder, file)
    theirs = logprobs(file, tokens(PREFIX, start=True), [tokens(target) for target in TARGETS])
    library = pytest.importorskip("transformers")
    whole = library.AutoModelForCausalLM.from_pretrained(folder)
    for target, other in zip(TARGETS, theirs, strict=True):
        prefix, rest = tokens(PREFIX, start=True), tokens(target)
        ids = torch.tensor([[*prefix, *rest]])
        with torch.no_grad():
            logits = whole(ids).logits[0, len(prefix) - 1 : -1].log_softmax(-1)
        ours = float(logits.gather(1, ids[0, len(prefix) :, None]).sum())
        assert ours == pytest.approx(other, rel=0.03, abs=0.3), target


@pytest.mark.parametrize("change", [{"model_type": "gpt2"}, {"model_type": "nothing"}])
def test_a_folder_of_another_kind_is_named(folder, tmp_path, change) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UsageError, match="tiny-model holds"):
        write_base(folder, tmp_path / "made.gguf")


def test_a_folder_is_trained_on_and_its_adapter_fits_it(folder, tmp_path, capsys) -> None:
    common = ["train", "umi", "--base", str(folder), "--only", "single", "--tasks", "2", "--held", "1", "--json"]
    out = tmp_path / "run"
    assert main([*common, "--steps", "2", "--batch", "1", "--out", str(out)]) == 0
    made = json.loads(capsys.readouterr().out)
    check_adapter(Path(made["single"]), out / "tiny-model.gguf")
    card = Path(made["card"]).read_text(encoding="utf-8")
    assert "2 tasks (seed " in card
    assert "| single | " in card
    assert "{" not in card


def test_a_run_begins_as_the_adapter_that_is_named_and_learns_from_files_of_trajectories(
    folder, tmp_path, capsys
) -> None:
    def made(out: str, *more: str) -> dict[str, str]:
        numbers = ["--steps", "1", "--batch", "1", "--tasks", "2", "--held", "1", "--rank", "4"]
        given = ["--base", str(folder), "--only", "single", *numbers, "--out", str(tmp_path / out), *more, "--json"]
        assert main(["train", "umi", *given]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    schema = {"name": "forecast", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}
    step = {"decision": "call", "tool": "forecast", "arguments": {}, "observation": "rain"}
    task = {"id": "task-0", "tools": [schema], "query": "Will it rain?", "steps": [step, {"decision": "finish"}]}
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(f"{json.dumps(task)}\n")
    first = made("first", "--rate", "0.05")
    again = made("again", "--rate", "1e-9", "--begin", first["single"], "--trajectories", str(recorded))
    base = tmp_path / "first" / "tiny-model.gguf"
    matrices = [read_adapter(base, Path(one["single"]), 4) for one in (first, again)]
    assert matrices[0].keys() == matrices[1].keys()
    assert all((matrices[1][name] == value).all() for name, value in matrices[0].items())
    assert any(value.any() for name, value in matrices[0].items() if name.endswith(".b"))
    assert len((tmp_path / "again" / "trajectories.jsonl").read_text().splitlines()) == 1
    card = Path(again["card"]).read_text(encoding="utf-8")
    assert "recorded.jsonl" in card
    assert "single.gguf" in card
    with pytest.raises(AssertionError, match="no adapter of rank 4"):
        made("other", "--begin", "embedded")
