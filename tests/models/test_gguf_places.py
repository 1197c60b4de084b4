"""Finding GGUF files in the folders of other programs."""

import json
from pathlib import Path

import pytest
from unprivileged import closed, read_only_folder

from ecoshell.errors import ModelMissing
from ecoshell.models.gguf import check_base, header, parameters
from ecoshell.models.hub_names import hub_name
from ecoshell.models.local_models import ModelFile, hub_file, local_files, local_name, model_files


def make_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    context: int = 4096,
    kind: str = "model",
    label: str = "",
) -> Path:
    """Write a GGUF file with metadata and no weights."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, arch=architecture)
    writer.add_type(kind)
    writer.add_context_length(context)
    if label:
        writer.add_size_label(label)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings of other programs."""
    names = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "LLAMA_CACHE")
    for name in (*names, "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def list_models(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lists the model files by path, with these environment variables set."""

    def listed(**environ: str) -> dict[Path, ModelFile]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return {file.path: file for file in model_files(tmp_path / "models")}

    return listed


def test_metadata_is_read_from_the_header(list_models, tmp_path):
    path = make_gguf(tmp_path / "models" / "mine.gguf", architecture="qwen2", context=32768)
    assert header(path)["general.architecture"] == "qwen2"
    (model,) = list_models().values()
    assert (model.context, model.size_bytes, model.place) == (
        32768,
        path.stat().st_size,
        "models folder",
    )
    assert local_name(model) == f"local:{path}"


def test_models_in_the_hub_cache_are_listed_by_their_hub_names(list_models, home):
    repo = home / ".cache" / "huggingface" / "hub" / "models--maker--small-GGUF"
    blob = make_gguf(repo / "blobs" / "abc")
    for revision in ("aaa", "bbb"):
        (repo / "snapshots" / revision).mkdir(parents=True)
        (repo / "snapshots" / revision / "small-Q4_K_M.gguf").symlink_to(blob)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("bbb")
    (repo / "blobs" / "def.1234.incomplete").write_bytes(b"GGUF")
    ((path, model),) = list_models().items()
    assert path == repo / "snapshots" / "bbb" / "small-Q4_K_M.gguf"
    assert (local_name(model), model.place) == ("hf:maker/small-GGUF:Q4_K_M", "hub cache")
    assert hub_file(hub_name("hf:maker/small-GGUF"), home / "none") == path


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"])
def test_environment_variables_move_the_hub_cache(list_models, tmp_path, variable):
    folder = tmp_path / "elsewhere"
    hub = folder / "hub" if variable == "HF_HOME" else folder
    make_gguf(hub / "models--a--b" / "snapshots" / "c" / "b-Q8_0.gguf")
    models = list_models(**{variable: str(folder)}).values()
    assert [local_name(model) for model in models] == ["hf:a/b:Q8_0"]


def test_lm_studio_models_are_listed_from_both_default_folders_and_the_configured_one(
    list_models, home, tmp_path
):
    new = make_gguf(home / ".lmstudio" / "models" / "a" / "b" / "new.gguf")
    old = make_gguf(home / ".cache" / "lm-studio" / "models" / "a" / "old.gguf")
    moved = make_gguf(tmp_path / "big-disk" / "models" / "moved.gguf")
    (home / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'big-disk'}\n")
    assert {path: file.place for path, file in list_models().items()} == dict.fromkeys(
        (moved, new, old), "LM Studio"
    )


def test_models_in_the_llama_cpp_cache_are_listed(list_models, home, tmp_path):
    default = make_gguf(home / ".cache" / "llama.cpp" / "maker_small.gguf")
    configured = make_gguf(tmp_path / "cache" / "other.gguf")
    (home / ".cache" / "llama.cpp" / "half.gguf.downloadInProgress").write_bytes(b"GGUF")
    if default in list_models():  # other systems have another default
        assert list(list_models()) == [default]
    assert list(list_models(LLAMA_CACHE=str(tmp_path / "cache"))) == [configured]


def test_ollama_models_are_listed_from_their_manifests(list_models, home):
    models = home / ".ollama" / "models"
    blob = make_gguf(models / "blobs" / ("sha256-" + "a" * 64))
    (models / "blobs" / ("sha256-" + "b" * 64 + "-partial")).write_bytes(b"GGUF")
    for name, digest in (
        ("library/qwen3/4b", "a"),
        ("library/gone/1b", "c"),
        ("someone/else/latest", "a"),
    ):
        manifest = models / "manifests" / "registry.ollama.ai" / name
        manifest.parent.mkdir(parents=True)
        layers = [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "d" * 64},
            {
                "mediaType": "application/vnd.ollama.image.model",
                "digest": "sha256:" + digest * 64,
                "size": 1,
            },
        ]
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    for name, text in (
        ("bad", "{"),
        ("odd", '{"layers": 3}'),
        ("evil", json.dumps({"layers": [evil_layer()]})),
    ):
        (models / "manifests" / name).write_text(text)
    assert {path: file.place for path, file in list_models().items()} == {blob: "Ollama: qwen3:4b"}
    assert local_files(local_name(list_models()[blob])).base == blob


def evil_layer() -> dict[str, str]:
    return {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": "sha256:../../../../etc/passwd",
    }


def test_files_that_are_not_chat_models_are_not_listed(list_models, tmp_path):
    folder = tmp_path / "models"
    make_gguf(folder / "embedding.gguf", architecture="nomic-bert")
    make_gguf(folder / "eyes.gguf", architecture="clip")
    make_gguf(folder / "mmproj.gguf", kind="mmproj")
    make_gguf(folder / "adapter.gguf", kind="adapter")
    (folder / "text.gguf").write_text("no model")
    (folder / "half.gguf.part").write_bytes(b"GGUF")
    (folder / "empty.gguf").touch()
    assert list_models() == {}


def test_part_one_of_zero_is_a_complete_model(list_models, tmp_path):
    path = make_gguf(tmp_path / "models" / "maker" / "odd" / "odd-Q8_0-00001-of-00000.gguf")
    assert hub_file(hub_name("maker/odd"), tmp_path / "models") == path
    assert list(list_models()) == [path]


@pytest.mark.parametrize(
    ("label", "count"),
    [
        ("135M", 135_000_000),
        ("8x7B", 56_000_000_000),
        ("9" * 400 + "B", None),
        ("9" * 5000 + "x1B", None),
    ],
    ids=["one", "experts", "long", "longest"],
)
def test_an_implausible_parameter_count_is_unknown(tmp_path, label: str, count: int | None):
    assert parameters(make_gguf(tmp_path / "some.gguf", label=label)) == count


def test_a_file_shared_by_two_programs_is_listed_once(list_models, home, tmp_path):
    mine = make_gguf(tmp_path / "models" / "mine.gguf")
    linked = home / ".lmstudio" / "models" / "linked.gguf"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(mine)
    assert list(list_models()) == [mine]


def test_an_incomplete_model_is_refused_with_the_name_of_the_missing_part(tmp_path):
    first = make_gguf(tmp_path / "big-00001-of-00002.gguf")
    with pytest.raises(ModelMissing, match=r"big-00002-of-00002\.gguf is missing"):
        check_base(first)
    second = make_gguf(tmp_path / "big-00002-of-00002.gguf")
    check_base(first)
    with pytest.raises(ModelMissing, match="not the first part") as failed:
        check_base(second)
    assert failed.value.fix == "Name big-00001-of-00002.gguf."


def test_a_missing_folder_or_a_file_in_its_place_lists_nothing(list_models, tmp_path):
    assert list_models() == {}
    (tmp_path / "models").write_text("a file")
    assert list_models() == {}


@pytest.mark.usefixtures("home")
def test_a_folder_without_search_permission_lists_nothing(tmp_path):
    with read_only_folder(make_gguf(tmp_path / "some.gguf")) as folder:
        assert [model.path.name for model in model_files(folder)] == ["some.gguf"]
        with closed(folder, is_listable=True):
            assert model_files(folder) == []
