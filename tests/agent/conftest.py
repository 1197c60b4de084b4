"""A whole shell over real SQLite in a temporary home, with scripted models."""

import json
from contextlib import asynccontextmanager

import pytest
from agent_play import Recorder

from ecoshell.agent.model_set import ModelSet
from ecoshell.assembly.shell import assemble
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.options import Options


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(
        "ECOSHELL_AGENT_CONTEXT", "off"
    )  # or sums of tokens would depend on the day and the machine
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("one\ntwo\nthree\n")
    return workspace


@pytest.fixture
def play(home, tmp_path):
    """Open a shell whose model replies with these lines: `async with play([…], user=…, budget=…) as shell`."""

    @asynccontextmanager
    async def opened(lines, *, user=None, price=None, recorder=Recorder, **options):
        script = tmp_path / "script.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        shell = await assemble(
            Options(model=f"script:{script}", workspace=home, price=price, **options), user
        )
        model = recorder(script, price=shell.deps.models.current.model.traits.price)
        metered = MeteredModel(model, shell.deps.budget.gate, shell.deps.budget.account)
        shell.deps.models.current = ModelSet(metered, Single(metered, ModeLimits(200, 100)))
        shell.requests = model.requests
        try:
            yield shell
        finally:
            await shell.aclose()

    return opened
