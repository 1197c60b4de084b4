import pytest

from ecoshell.agent.dependencies import SETTING_KEYS
from ecoshell.assembly import session_settings
from ecoshell.assembly.live import AT_ONCE
from ecoshell.options import Options
from ecoshell.settings.schema import Settings


def test_a_sessions_settings_are_those_of_the_file_and_what_this_run_was_told_goes_before():
    given = {"agent": {"strategy": "tot", "max_steps": 7}, "budget": {"ask_above": "0.01"}}
    found = session_settings(Settings.model_validate(given), Options(strategy="dfsdt"))
    assert (found.strategy, found.max_steps, found.ask_above_nano) == ("dfsdt", 7, 10_000_000)
    assert found.registration == Settings().agent.registration


@pytest.mark.parametrize("key", SETTING_KEYS)
def test_a_setting_of_the_session_holds_at_once_in_a_running_shell(key):
    assert tuple(key.split(".")) in AT_ONCE
