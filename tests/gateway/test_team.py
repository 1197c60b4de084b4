"""A team's cap covers the agents of its members."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from gateway_play import message_of, playing
from odd_provider import OddProvider

from ecoshell.budget import NANO
from ecoshell_team.server import TeamServer


async def test_a_teams_cap_holds_for_the_gateways_of_two_members(
    team_ledger: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with closing(TeamServer(team_ledger("postgres"))) as admin:
        admin.set_cap("everybody", "month", NANO // 1000)
        async with OddProvider() as provider:
            for person in ("ann", "bob"):
                monkeypatch.setenv("ECOSHELL_LEDGER", team_ledger(person))
                async with playing(tmp_path / person, provider.address, budget=None) as play:
                    assert (await play.chat()).status_code == 200
                    refusal = await play.chat("x" * 10_000)
                    assert refusal.status_code == 402
                    assert "cap of $0.001 of the everybody month reached" in message_of(refusal)
                    assert "ask an administrator" in message_of(refusal)
        (cap,) = admin.caps()
        assert 0 < cap.spent <= NANO // 1000
        assert cap.spent + cap.held + cap.leased <= NANO // 1000
