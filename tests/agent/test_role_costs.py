"""Costs by role and the model of each role."""

from agent_play import register, say, turn

LINES = [
    say("A counter is needed. Next: caller."),
    register("count_text"),
    say("Count them. Next: caller."),
    say("", "count_text", path="notes.txt"),
    say("Enough is known. Next: conclusion."),
    say("3 lines"),
]


async def test_the_models_of_the_roles_follow_the_mode(play):
    async with play(LINES, registration="names") as shell:
        name = shell.deps.models.name
        assert (await shell.status()).players == (("single", name),)
        await shell.command("/mode umi")
        assert (await shell.status()).players == (
            ("planner", name),
            ("caller", name),
            ("summarizer", name),
        )
        await shell.command("/mode single")
        assert (await shell.status()).players == (("single", name),)


async def test_cost_lists_several_roles(play):
    async with play(LINES, registration="names") as shell:
        await shell.command("/mode umi")
        await turn(shell)
        printed = (await shell.command("/cost")).text
        rows = {line.split()[0]: line.split() for line in printed.splitlines() if line}
        ledger_rows = {row.key: row for row in shell.ledger.rows("role", shell.session)}
    assert rows["role"] == ["role", "calls", "in", "cached", "out", "spent", "seconds"]
    assert {role: int(rows[role][1]) for role in ledger_rows} == {
        "planner": 3,
        "caller": 2,
        "summarizer": 1,
    }
    for role, row in ledger_rows.items():
        assert rows[role][2:5] == [
            f"{row.usage.input:,}",
            f"{row.usage.cached:,}",
            f"{row.usage.output:,}",
        ]
        assert rows[role][5] == "$0"
        assert float(rows[role][6]) == round(row.seconds, 1)


async def test_cost_omits_roles_if_there_is_only_one(play):
    async with play([say("", "finish", answer="3")], registration="all") as shell:
        await turn(shell)
        assert "seconds" not in (await shell.command("/cost")).text
