"""What a shell does whose files cannot be written: it reads, and asks nothing it could not pay for or keep."""

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


async def asked(shell, question: str) -> list[str]:
    async with aclosing(shell.ask(question)) as events:
        return [event.text async for event in events if isinstance(event, Answer)]


@pytest.mark.parametrize("file", ["ledger.sqlite", "sessions.sqlite"])
async def test_a_shell_that_loses_a_file_asks_nothing_and_still_shows_what_was_said(options, tmp_path, file):
    shell = await assemble(options)
    try:
        assert await asked(shell, "first") == ["It is done."]
        (tmp_path / "home" / "data" / file).unlink()
        assert "removed or replaced" in str(shell.read_only)
        with pytest.raises(StoreError, match="Nothing was asked, nothing was spent"):
            await asked(shell, "second")
        await shell.command(f"/export {tmp_path / 'said.md'}")
        assert "It is done." in (tmp_path / "said.md").read_text()
    finally:
        await shell.aclose()


async def test_a_shell_over_files_that_cannot_be_written_resumes_a_session_and_asks_nothing(
    options, tmp_path, monkeypatch
):
    shell = await assemble(options)
    assert await asked(shell, "first") == ["It is done."]
    session = shell.session
    await shell.aclose()
    data = tmp_path / "home" / "data"
    with read_only_folder(data / "ledger.sqlite", data / "sessions.sqlite") as folder:
        monkeypatch.setattr("ecoshell.assembly.shell.user_paths", lambda: Paths(folder, folder, folder))
        reader = await assemble(Options(workspace=folder, model=None, resume=session))
        try:
            assert any(isinstance(event, Answer) for event in reader.past)
            with pytest.raises(StoreError, match="cannot be written"):
                await asked(reader, "second")
        finally:
            await reader.aclose()


async def test_models_that_may_not_be_looked_at_are_missing(options, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    shell = await assemble(options)
    try:
        with read_only_folder():
            for name in ("script", "local"):
                with pytest.raises(ModelMissing, match=r"cannot be read|There is no file"):
                    await shell.command(f"/model {name}:{tmp_path / 'closed' / 'x.gguf'}")
    finally:
        await shell.aclose()
