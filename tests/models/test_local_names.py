from pathlib import Path

import pytest

from ecoshell.errors import UsageError
from ecoshell.models import local_models
from ecoshell.models.local_models import LocalFiles, is_embedded, local_files, name_parts


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_models, "embedded_path", lambda: Path("small.gguf"))
    monkeypatch.setattr("ecoshell.models.embedded.ADAPTERS", tmp_path)
    for name in ("base.gguf", "adapter.gguf", "c++.gguf", "a+b.gguf", "x+y.gguf"):
        (tmp_path / name).touch()


@pytest.mark.parametrize(
    ("name", "base", "adapter"),
    [
        ("embedded", "small.gguf", None),
        ("embedded+adapter.gguf", "small.gguf", "adapter.gguf"),
        ("local:base.gguf", "base.gguf", None),
        ("local:base.gguf+adapter.gguf", "base.gguf", "adapter.gguf"),
        ("local:base.gguf+a+b.gguf", "base.gguf", "a+b.gguf"),
        ("local:c++.gguf", "c++.gguf", None),
        ("local:c++.gguf+x+y.gguf", "c++.gguf", "x+y.gguf"),
        ("local:base.gguf+gone.gguf", "base.gguf", "gone.gguf"),
        ("local:gone.gguf+adapter.gguf", "gone.gguf", "adapter.gguf"),
        ("local:gone++", "gone++", None),
    ],
)
def test_a_plus_separates_base_and_adapter_unless_it_is_part_of_a_file_name(
    name: str, base: str, adapter: str | None
):
    assert local_files(name) == LocalFiles(Path(base), Path(adapter) if adapter else None)


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "script:a+b.jsonl", "embeddedness"])
def test_other_names_are_not_local_models(name: str):
    assert local_files(name) is None
    assert not is_embedded(name)


@pytest.mark.parametrize("name", ["embedded+", "local:base.gguf+"])
def test_a_trailing_plus_is_refused(name: str):
    with pytest.raises(UsageError, match="no adapter"):
        local_files(name)


def test_paths_in_the_home_folder_are_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_files("local:~/base.gguf+~/adapter.gguf") == LocalFiles(
        tmp_path / "base.gguf", tmp_path / "adapter.gguf"
    )


@pytest.mark.parametrize(
    ("name", "model", "adapter"),
    [
        ("embedded", "embedded", ""),
        ("embedded+adapter.gguf", "embedded", "adapter.gguf"),
        ("local:/a/base.gguf+/b/adapter.gguf", "local:/a/base.gguf", "/b/adapter.gguf"),
        ("local:BASE.GGUF+a+b.gguf", "local:BASE.GGUF", "a+b.gguf"),
        ("local:c++.gguf", "local:c++.gguf", ""),
        ("local:base.gguf+", "local:base.gguf+", ""),
        ("openai/x.gguf+y.gguf", "openai/x.gguf+y.gguf", ""),
        ("script:a+b.jsonl", "script:a+b.jsonl", ""),
    ],
)
def test_a_name_is_split_without_looking_at_files(name: str, model: str, adapter: str):
    assert name_parts(name) == (model, adapter)
