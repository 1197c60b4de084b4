"""The line about a cap that is nearly used up: once per cap and limit, in every interface."""

from decimal import Decimal

from agent_play import finish, of, turn

from ecoshell.agent.turn_usage import CapWatch
from ecoshell.budget import Amount, CapState
from ecoshell.cli.answer_output import AnswerOutput
from ecoshell.events import CapNear
from ecoshell.sessions.export import as_markdown
from ecoshell.tui.transcript.event_blocks import block_of


def looks(watch, *states):
    """The limits reported at each look, for states of (spent, limit)."""
    reported = []
    for spent, limit in states:
        events = []
        watch.look([CapState("session", "tokens", limit, spent, 0)], events.append)
        reported.append([event.limit for event in events])
    return reported


def test_a_cap_is_reported_at_80_percent_once_and_again_when_a_raised_one_fills_up():
    states = [
        (79, 100),
        (80, 100),
        (100, 100),
        (100, 110),
        (100, 200),
        (160, 200),
        (170, 200),
        (0, 200),
        (180, 200),
    ]
    assert looks(CapWatch(), *states) == [[], [100], [], [110], [], [200], [], [], [200]]


def test_a_resumed_session_does_not_repeat_the_report():
    watch = CapWatch([CapNear("session", "tokens", 100, 85)])
    assert looks(watch, (90, 100), (90, 105)) == [[], [105]]


def test_the_line_names_the_cap_and_what_is_left_in_its_unit():
    assert (
        CapNear("day", "ms", 120_000, 100_000).render().words
        == "83 % of the day's cap of 2 min is used: 20 s left"
    )


async def test_a_turn_reports_a_nearly_used_cap_once_in_all_outputs(play, capsys):
    async with play(
        [finish("one"), finish("two")], price=(Decimal(1000), Decimal(1000)), budget="1000"
    ) as shell:
        spent = (await turn(shell))[-1].spent_nano
        await shell.set_cap("session", Amount(spent * 100 // 85, "usd"))
        events = await turn(shell)
        text = as_markdown(shell.store.events(shell.session))
    (near,) = of(events, CapNear)
    assert near.spent == spent
    assert text.count("85 % of the session's cap of") == 1
    output = AnswerOutput(lambda: None)
    output.show(near)
    assert "85 % of the session's cap of" in capsys.readouterr().err
    assert block_of(near).text().startswith("85 % of the session's cap of")
