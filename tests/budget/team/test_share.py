"""A user's view of team caps in a chat: spending of the team and of the user."""

import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from ecoshell.assembly import load_settings
from ecoshell.assembly.shell import assemble
from ecoshell.budget import NANO
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.tui.side.cost import BudgetPanel
from ecoshell.tui.side.panel_state import PanelState
from ecoshell_team.server import TeamServer


async def test_cost_and_the_budget_panel_show_spending_of_user_and_team(
    team_ledger: Callable[..., str], tmp_path: Path
) -> None:
    admin = TeamServer(team_ledger("postgres"))
    admin.set_cap("team:search", "month", 100 * NANO)
    admin.set_cap("person:ann", "day", 20 * NANO)
    script = tmp_path / "model.jsonl"
    script.write_text(
        json.dumps({"text": "It is 3.", "usage": {"input": 400, "output": 100}}) + "\n"
    )
    printed: dict[str, str] = {}
    panel_lines: dict[str, list[str]] = {}
    for person in ("bob", "ann"):
        paths = Paths.under(tmp_path / person)
        paths.config.mkdir(parents=True)
        price = 'price = { input = "1000", output = "1000" }'
        paths.settings_file.write_text(
            f'model = "script:{script}"\n[models."script:{script}"]\n{price}\n'
            f'[budget]\nledger = "{team_ledger(person)}"\n'
        )
        shell = await assemble(
            Options(workspace=tmp_path), paths=paths, settings=load_settings(paths)
        )
        async with aclosing(shell.ask("How much is 1 and 2?")) as events:
            async for _ in events:
                pass
        printed[person] = (await shell.command("/cost")).text
        status, state = await shell.status(), PanelState()
        state.update(status, status.caps)
        panel_lines[person] = [
            "".join(text for text, _ in line) for line in BudgetPanel(state).lines(48)
        ]
        await shell.aclose()
    admin.close()
    caps = {
        line.split()[0]: line.split()
        for line in printed["ann"].splitlines()
        if " day " in line or " month " in line
    }
    assert caps["person:ann"][1:] == ["day", "$20", "$0.50", "$0", "$19.50"]
    assert caps["team:search"][1:] == [
        "month",
        "$100",
        "$1",
        "$0",
        "$99",
        "$0.50",
    ]  # including the spending of bob
    lines = [" ".join(line.split()) for line in panel_lines["ann"]]
    assert lines[lines.index("person:ann day $19.50 left of $20") + 2] == "spent $0.50 · held $0"
    assert (
        lines[lines.index("team:search month $99 left of $100") + 2]
        == "spent $1 · held $0 · by you $0.50"
    )
    assert "person:" not in printed["bob"]
