"""LoRA adapters of a local model: their effect, shared weights and errors for unsuitable files."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.messages import Call, Message
from ecoshell.models import Reply, Request

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from adapter_files import make_adapter

from ecoshell.models import engine
from ecoshell.models.embedded import embedded_path
from ecoshell.models.engine import EngineOptions
from ecoshell.models.gguf import header, tensor_shapes
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import model_files

OPTIONS = EngineOptions(context=512)
QUESTION = Request((Message("user", "What is the capital of France?"),), want="text", max_tokens=6)


def cut_adapter(path: Path) -> Path:
    """An adapter of the right shape with truncated weights."""
    make_adapter(path, scale=0)
    path.write_bytes(path.read_bytes()[:60_000])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    make_adapter(folder / "zero.gguf", scale=0)
    make_adapter(folder / "loud.gguf", scale=0.1)
    return folder


@pytest.fixture
async def cast():
    """Makes models of the embedded base and closes them after the test."""
    models: list[LocalModel] = []

    def make(adapter: Path | None = None) -> LocalModel:
        models.append(LocalModel(embedded_path(), adapter=adapter, options=OPTIONS))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose weights were loaded."""
    loaded: list[Path] = []
    load = engine.load_model

    def counted(path: Path, **options):
        loaded.append(path)
        return load(path, **options)

    monkeypatch.setattr(engine, "load_model", counted)
    return loaded


def asking(text: str, *, role: str = "") -> Request:
    return Request((Message("user", text),), want="text", max_tokens=6, role=role)


async def reply_of(model: LocalModel, request: Request) -> Reply:
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1]


async def test_switching_adapters_changes_the_answer_and_back(cast, folder):
    base, zero, loud = cast(), cast(folder / "zero.gguf"), cast(folder / "loud.gguf")
    answers = [(await reply_of(model, QUESTION)).text for model in (base, zero, loud, base, loud)]
    plain, changed = answers[0], answers[2]
    assert plain != changed
    assert answers == [plain, plain, changed, plain, changed]


@pytest.mark.parametrize("role", ["single", ""])
async def test_a_trained_model_quotes_the_last_result_by_a_placeholder(cast, tmp_path, role):
    model = cast(make_adapter(tmp_path / "made.gguf", scale=0, role=role))
    read = Call("read_file", {"path": "notes.txt"})
    messages = (
        Message("user", "Read it."),
        Message("assistant", "", (read,)),
        Message("tool", "Milk [result]\n and tea.\n", (read,)),
    )
    request = Request(messages, want="text", grammar='root ::= "It says: [result]!"', max_tokens=20)
    pieces = [piece async for piece in model.stream(request)]
    text = "It says: \n```\nMilk [result]\n and tea.\n```\n!" if role else "It says: [result]!"
    assert pieces[-1].text == "".join(piece.text for piece in pieces[:-1]) == text


async def test_models_of_one_base_load_it_once_and_the_last_to_close_frees_it(cast, folder, loads):
    base, zero, loud = cast(), cast(folder / "zero.gguf"), cast(folder / "loud.gguf")
    for model in (base, zero, loud):
        await reply_of(model, asking("Say hello."))
    await zero.aclose()
    await zero.aclose()
    await base.aclose()
    assert (await reply_of(loud, asking("Say hello."))).text
    assert loads == [embedded_path()]
    await loud.aclose()
    assert (await reply_of(cast(), asking("Say hello."))).text
    assert loads == [embedded_path()] * 2


async def test_a_closed_adapter_can_be_loaded_again(cast, folder):
    base, loud = cast(), cast(folder / "loud.gguf")
    changed = (await reply_of(loud, QUESTION)).text
    await loud.aclose()
    assert (await reply_of(base, QUESTION)).text != changed
    assert (await reply_of(cast(folder / "loud.gguf"), QUESTION)).text == changed


async def test_each_adapter_reuses_only_its_own_cached_prompts(cast, folder):
    base, loud = cast(), cast(folder / "loud.gguf")
    request = asking("Name three colours and say why people like them.", role="planner")
    for model in (base, loud):
        usage = (await reply_of(model, request)).usage
        assert usage is not None
        assert usage.cached == 0
    for model in (base, loud):
        usage = (await reply_of(model, request)).usage
        assert usage is not None
        assert usage.cached == usage.input - 1


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("missing", "no file"),
        ("text", "not a GGUF file"),
        ("model", "not a LoRA adapter"),
        ("arch", "architecture qwen2.*architecture llama"),
    ],
)
def test_a_file_that_is_not_an_adapter_of_the_base_is_refused_immediately(
    tmp_path: Path, broken: str, message: str
):
    path = tmp_path / "adapter.gguf"
    if broken == "text":
        path.write_text("hello")
    elif broken == "model":
        path.symlink_to(embedded_path())
    elif broken == "arch":
        make_adapter(path, scale=0, arch="qwen2")
    with pytest.raises((ModelMissing, ModelBroken), match=message) as caught:
        LocalModel(embedded_path(), adapter=path)
    assert str(path) in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize("broken", ["cut", "width", "layers"])
async def test_an_unfit_adapter_names_both_files_and_the_base_still_works(
    cast, tmp_path: Path, broken: str
):
    path = tmp_path / "adapter.gguf"
    if broken == "cut":
        cut_adapter(path)
    else:
        make_adapter(path, scale=0, **{broken: {"width": 512, "layers": 40}[broken]})
    base, unfit = cast(), cast(path)
    with pytest.raises(ModelBroken) as caught:
        await reply_of(unfit, asking("Hello"))
    assert str(tmp_path / "adapter.gguf") in caught.value.message
    assert str(embedded_path()) in caught.value.message
    assert (await reply_of(base, asking("Hello"))).text


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 3_000), at=st.integers(0, 3_000), junk=st.binary(max_size=16))
def test_reading_a_damaged_header_never_raises(folder, tmp_path, cut, at, junk):
    header_bytes = (folder / "zero.gguf").read_bytes()[:6_000]
    path = tmp_path / "broken.gguf"
    damaged = header_bytes[:at] + junk + header_bytes[at + len(junk) :]
    path.write_bytes(damaged[: len(header_bytes) - cut])
    shapes = tensor_shapes(path)
    assert all(isinstance(name, str) and len(shape) <= 4 for name, shape in shapes.items())
    assert all(isinstance(text, str) for text in header(path).values())


def test_the_first_part_of_a_split_base_has_no_tensor_shapes(tmp_path: Path):
    gguf = pytest.importorskip("gguf")
    import numpy as np

    for parts in (1, 2):
        writer = gguf.GGUFWriter(tmp_path / f"{parts}.gguf", arch="llama")
        writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
        writer.add_uint16("split.count", parts)
        writer.add_tensor("blk.0.attn_q.weight", np.zeros((3, 2), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    assert tensor_shapes(tmp_path / "1.gguf") == {"blk.0.attn_q.weight": (2, 3)}
    assert tensor_shapes(tmp_path / "2.gguf") == {}


def test_an_adapter_in_place_of_a_model_is_refused_with_a_hint(folder: Path):
    with pytest.raises(ModelBroken, match="is an adapter, not a model") as caught:
        LocalModel(folder / "zero.gguf")
    assert "+" in caught.value.fix


def test_adapters_in_the_models_folder_are_not_listed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "adapter.gguf").symlink_to(folder / "zero.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    (tmp_path / "base.gguf").symlink_to(embedded_path())
    assert header(tmp_path / "deep" / "adapter.gguf")["general.type"] == "adapter"
    assert [file.path.name for file in model_files(tmp_path)] == [
        "base.gguf",
        "broken.gguf",
    ]


def test_a_wrong_adapter_writes_nothing_to_the_terminal(tmp_path: Path):
    path = cut_adapter(tmp_path / "adapter.gguf")
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from ecoshell.errors import ModelBroken\n"
        "from ecoshell.messages import Message\n"
        "from ecoshell.models import Request\n"
        "from ecoshell.models.embedded import embedded_path\n"
        "from ecoshell.models.local import LocalModel\n"
        "model = LocalModel(embedded_path(), adapter=Path(sys.argv[1]))\n"
        "async def ask(): return [p async for p in model.stream(Request((Message('user', 'a'),), want='text'))]\n"
        "try: asyncio.run(ask())\n"
        "except ModelBroken: sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
