import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from ecoshell.assembly.shell import assemble
from ecoshell.errors import UsageError
from ecoshell.options import Options
from ecoshell.paths import user_paths


async def test_a_start_that_fails_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="Unknown strategy"):
        await assemble(Options(model="embedded", strategy="none", workspace=tmp_path))
    assert not [
        file
        for file in await asyncio.to_thread(_open_files)
        if file.is_relative_to(user_paths().data)
    ]


def _open_files() -> list[Path]:
    found: list[Path] = []
    for number in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.append(number.readlink())
    return found
