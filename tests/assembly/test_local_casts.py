"""Local models as the shell casts them: their names, and adapters behind a plus."""

import asyncio
import shutil
from pathlib import Path

import pytest
from adapter_files import make_adapter

from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelBroken, ModelMissing, UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.options import Options, RoleModels

pytest.importorskip("llama_cpp", reason="the extra `local` is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return make_adapter(tmp_path / "adapter.gguf", scale=0)


async def test_a_base_with_an_adapter_is_cast_under_its_whole_name(adapter: Path):
    shell = await assemble(Options(model=f"embedded+{adapter}"))
    traits = shell.deps.models.current.model.traits
    await shell.aclose()
    assert traits.name == f"embedded+{adapter}"
    assert (traits.local, traits.small, traits.context) == (True, True, 8192)


async def test_what_cannot_be_an_adapter_is_refused_before_a_question_is_asked(
    tmp_path: Path, adapter: Path
):
    for name, kind in (
        (f"embedded+{tmp_path / 'gone.gguf'}", ModelMissing),
        ("embedded+", UsageError),
    ):
        with pytest.raises(kind):
            await assemble(Options(model=name))
    with pytest.raises(ModelBroken, match="is an adapter"):
        await assemble(Options(model=f"local:{adapter}"))


async def test_an_adapter_for_a_base_of_another_architecture_is_refused_with_its_role(
    tmp_path: Path,
):
    other = make_adapter(tmp_path / "other.gguf", scale=0, arch="qwen2")
    with pytest.raises(ModelBroken, match=r"cannot be the caller.*architecture qwen2") as caught:
        await assemble(
            Options(model="embedded", mode="umi", roles=RoleModels(caller=f"embedded+{other}"))
        )
    assert str(other) in caught.value.message


async def test_what_was_made_for_two_roles_is_let_go_where_the_third_cannot_be_cast(
    tmp_path: Path, adapter: Path
):
    own = shutil.copy(
        embedded_path(), tmp_path / "own.gguf"
    )  # other tests may keep the embedded model loaded
    shell = await assemble(Options(model=f"local:{own}"))
    model = shell.deps.models.current.model
    await asyncio.to_thread(model.count, "a text")
    adapted, gone = f"local:{own}+{adapter}", f"local:{tmp_path / 'gone.gguf'}"
    with pytest.raises(ModelMissing, match="cannot be the summarizer"):
        await shell.deps.models.give(RoleModels(planner=adapted, caller=adapted, summarizer=gone))
    assert (shell.deps.models.current.model, model.loaded) == (model, True)
    await shell.aclose()
    assert not model.loaded


async def test_an_adapter_for_one_model_plays_all_roles_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    make_adapter(shipped / "single.gguf", scale=0, role="single")
    monkeypatch.setattr("ecoshell.models.embedded.ADAPTERS", shipped)
    shell = await assemble(Options(model="embedded", mode="umi"))
    models = shell.deps.models
    assert (models.current.mode.name, type(models.current.mode).__name__) == ("umi", "SmallSingle")
    assert models.current.model.traits.trained == "single"
    await models.give(RoleModels(planner=f"script:{_script(tmp_path)}"))
    others = {player.traits.name for player in models.current.models} - {
        models.current.model.traits.name
    }
    assert others == {"embedded"}  # beside another planner it wears the same
    await shell.aclose()


def _script(folder: Path) -> Path:
    script = folder / "script.jsonl"
    script.write_text('{"text": "done"}\n')
    return script
