import asyncio
import threading

import pytest

from ecoshell.agent.session_settings import SETTING_KEYS
from ecoshell.assembly import session_settings
from ecoshell.assembly.live import AT_ONCE
from ecoshell.assembly.shell import assemble
from ecoshell.budget.ledger import Ledger
from ecoshell.options import Options
from ecoshell.settings.convert import to_settings
from ecoshell.settings.schema import Settings


def test_a_sessions_settings_are_those_of_the_file_and_what_this_run_was_told_goes_before():
    given = {"agent": {"strategy": "tot", "max_steps": 7}, "budget": {"ask_above": "0.01"}}
    found = session_settings(to_settings(Settings, given), Options(strategy="dfsdt"))
    assert (found.strategy, found.max_steps, found.ask_above_nano) == ("dfsdt", 7, 10_000_000)
    assert found.registration == Settings().agent.registration


@pytest.mark.parametrize("key", SETTING_KEYS)
def test_a_setting_of_the_session_holds_at_once_in_a_running_shell(key):
    assert tuple(key.split(".")) in AT_ONCE


async def test_a_cap_of_the_file_is_taken_over_whole_though_the_start_is_called_off(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    monkeypatch.setenv("ECOSHELL_BUDGET_DAY", "1.00")
    (tmp_path / "replies.jsonl").write_text("")
    begun, go_on = threading.Event(), threading.Event()
    adopt = Ledger.adopt_cap

    def held(ledger, scope, amount):
        begun.set()
        assert go_on.wait(240)
        adopt(ledger, scope, amount)

    monkeypatch.setattr(Ledger, "adopt_cap", held)
    options = Options(model=f"script:{tmp_path / 'replies.jsonl'}", workspace=tmp_path)
    starting = asyncio.create_task(assemble(options))
    assert await asyncio.to_thread(begun.wait, 240)
    starting.cancel()
    await asyncio.wait(
        [starting], timeout=0.2
    )  # it could end, if it did not wait for what is being written
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    monkeypatch.undo()
    ledger = Ledger(tmp_path / "data" / "ledger.sqlite")
    assert [(cap.scope, cap.limit) for cap in ledger.caps("", 0)] == [("day", 10**9)]
    ledger.close()
