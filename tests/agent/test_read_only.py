"""A shell whose files cannot be written still shows sessions, but calls no model."""

from contextlib import aclosing
from pathlib import Path

import pytest
from unprivileged import read_only_folder

from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelMissing, StoreError
from ecoshell.events import Answer
from ecoshell.options import Options
from ecoshell.paths import Paths


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "It is done."}\n' * 3)
    return Options(model=f"script:{script}", workspace=tmp_path)


async def answers(shell, question: str) -> list[str]:
    async with aclosing(shell.ask(question)) as events:
        return [event.text async for event in events if isinstance(event, Answer)]


@pytest.mark.parametrize("file", ["ledger.sqlite", "sessions.sqlite"])
async def test_a_shell_that_lost_a_file_calls_no_model_and_still_exports(options, tmp_path, file):
    shell = await assemble(options)
    try:
        assert await answers(shell, "first") == ["It is done."]
        (tmp_path / "home" / "data" / file).unlink()
        assert "removed or replaced" in str(shell.read_only)
        with pytest.raises(StoreError, match="Nothing was asked, nothing was spent"):
            await answers(shell, "second")
        await shell.command(f"/export {tmp_path / 'export.md'}")
        assert "It is done." in (tmp_path / "export.md").read_text()
    finally:
        await shell.aclose()


async def test_a_shell_with_read_only_files_resumes_a_session_and_calls_no_model(
    options, tmp_path, monkeypatch
):
    shell = await assemble(options)
    assert await answers(shell, "first") == ["It is done."]
    session = shell.session
    await shell.aclose()
    data = tmp_path / "home" / "data"
    with read_only_folder(data / "ledger.sqlite", data / "sessions.sqlite") as folder:
        monkeypatch.setattr(
            "ecoshell.assembly.shell.user_paths", lambda: Paths(folder, folder, folder)
        )
        reader = await assemble(Options(workspace=folder, model=None, resume=session))
        try:
            assert any(isinstance(event, Answer) for event in reader.past)
            with pytest.raises(StoreError, match="cannot be written"):
                await answers(reader, "second")
        finally:
            await reader.aclose()


async def test_models_in_an_unreadable_folder_are_missing(options, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    shell = await assemble(options)
    try:
        with read_only_folder():
            for name in ("script", "local"):
                with pytest.raises(ModelMissing, match=r"cannot be read|There is no file"):
                    await shell.command(f"/model {name}:{tmp_path / 'closed' / 'x.gguf'}")
    finally:
        await shell.aclose()
