"""The apprentice predicts a paid model's calls; its predictions are recorded, but never run, billed or waited for."""

import asyncio
import json
from contextlib import asynccontextmanager, closing
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn

from ecoshell.agent.apprentice import Apprentice, agreements
from ecoshell.assembly.model_factory import ConfiguredModelFactory
from ecoshell.assembly.shell import assemble
from ecoshell.cli import main
from ecoshell.errors import ModelMissing
from ecoshell.events import BudgetSettled, CallFinished, Notice, TurnFinished
from ecoshell.messages import Call, Message
from ecoshell.models import Request
from ecoshell.models.script import ScriptModel
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore, Prediction

PRICED = (Decimal(1), Decimal(1))
READ = say("", "read_file", path="notes.txt")
REQUEST = Request((Message("user", "read it"),))


@pytest.fixture
def script(tmp_path):
    def script(name, lines):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    return script


@pytest.fixture
def shadowed(home, script, monkeypatch):
    """Open a shell with a paid model and an apprentice that replies with these lines."""

    @asynccontextmanager
    async def opened(paid, apprentice, *, settings="[learn]\nshadow = true\n", price=PRICED):
        user_paths().settings_file.parent.mkdir(parents=True, exist_ok=True)
        user_paths().settings_file.write_text(settings)
        models = []

        def idle(self, name):
            if isinstance(apprentice, Exception):
                raise apprentice
            models.append(ScriptModel(script("apprentice", apprentice)))
            return models[-1]

        monkeypatch.setattr(ConfiguredModelFactory, "_idle", idle)
        options = Options(model=f"script:{script('paid', paid)}", price=price, workspace=home)
        shell = await assemble(options, None)
        shell.models = models
        try:
            yield shell
        finally:
            await shell.aclose()

    return opened


def recorded() -> list[Prediction]:
    with closing(ExperienceStore(user_paths().experience_file)) as records:
        return records.predictions()


async def finish_predictions(shell) -> None:
    if (working := shell.deps.models.factory._apprentice._working) is not None:
        await working


async def test_calls_are_compared_by_name_and_arguments_and_cost_nothing(shadowed, home) -> None:
    (home / "notes.txt").write_text("one\n")
    again = say("", "read_file", path="notes.txt", start_line=1)
    apprentice = [
        say("Let me see.", "read_file", path=" notes.txt"),
        say("", "list_files"),
        say("No call."),
    ]
    async with shadowed(
        [READ, again, say("", "count_text", path="notes.txt"), finish("Done.")], apprentice
    ) as shell:
        events = await turn(shell, "read notes.txt, twice, and count")
        await finish_predictions(shell)
        assert [(prediction.tool, prediction.alike) for prediction in recorded()] == [
            ("read_file", True),
            ("read_file", False),
            ("count_text", False),
        ]
        paid = of(events, BudgetSettled)
        assert len(paid) == len(of(events, CallFinished)) + 1  # the apprentice has no entry
        assert [prediction.spent_nano for prediction in recorded()] == [
            settled.spent_nano for settled in paid[:3]
        ]
        assert recorded()[0].spent_nano > 0


@pytest.mark.parametrize(
    ("settings", "price"),
    [("", PRICED), ("[learn]\nshadow = true\n", None)],
    ids=["off by default", "free model"],
)
async def test_only_paid_models_are_shadowed_and_only_if_the_setting_is_on(
    settings, price, shadowed, home
) -> None:
    async with shadowed([READ, finish("Done.")], [READ], settings=settings, price=price) as shell:
        await turn(shell, "read notes.txt")
        assert "_apprentice" not in vars(shell.deps.models.factory)
        assert shell.models == []


async def test_a_turn_ends_without_waiting_for_the_apprentice(shadowed, home) -> None:
    async with shadowed([READ, finish("Done.")], [READ]) as shell:
        apprentice, started = shell.deps.models.factory._apprentice, asyncio.Event()

        async def never(*_):
            started.set()
            await asyncio.Event().wait()

        apprentice._work = never
        events = await turn(shell, "read notes.txt")
        assert of(events, TurnFinished)[0].status == "answered"
        await asyncio.wait_for(started.wait(), 30)
    assert recorded() == []  # closing the shell cancels it


async def test_an_apprentice_that_cannot_be_loaded_is_reported_once_and_turns_continue(
    shadowed, home
) -> None:
    missing = ModelMissing("The file does not exist.", fix="Name another.")
    async with shadowed([READ, READ, finish("Done."), READ, finish("Done.")], missing) as shell:
        events = await turn(shell, "read notes.txt")
        await finish_predictions(shell)
        events += await turn(shell, "read it again")
        await finish_predictions(shell)
        notices = [
            notice.text for notice in of(events, Notice) if "stopped predicting" in notice.text
        ]
        assert notices == [
            "embedded stopped predicting calls. The file does not exist. Name another."
        ]
        assert [finished.status for finished in of(events, TurnFinished)] == [
            "answered",
            "answered",
        ]


async def test_a_tool_is_proposed_once_predictions_are_good_enough_and_withdrawn_when_they_drop(
    script, tmp_path
) -> None:
    lines = [READ] * 20 + [say("", "list_files")] * 4
    file, news = tmp_path / "experience.sqlite", []
    apprentice = Apprentice(
        "embedded", lambda: ScriptModel(script("apprentice", lines)), lambda: ExperienceStore(file)
    )
    for use in range(1, 25):
        apprentice.shadow(REQUEST, Call("read_file", {"path": "notes.txt"}), 1_000)
        await apprentice._working
        news += [(use, text) for text in apprentice.news]
        apprentice.news.clear()
    await apprentice.aclose()
    (promoted, proposal), (demoted, withdrawal) = news
    assert promoted == 20  # 20 of 20: at least 84 %
    assert "read_file 20 of 20 alike" in proposal
    assert "/role caller embedded" in proposal
    assert demoted == 21  # 20 of 21: at least 77 %
    assert (
        withdrawal
        == "embedded no longer makes the same calls of read_file as the paid model. Good tools: none."
    )


def test_only_the_latest_uses_decide_whether_a_tool_is_good_enough() -> None:
    def uses(*alike: bool) -> list[Prediction]:
        return [Prediction("read_file", "embedded", is_alike, 2_000) for is_alike in alike]

    (learned,) = agreements(uses(*[False] * 100, *[True] * 48, *[False] * 2))
    assert (learned.uses, learned.alike, learned.good) == (150, 48, True)
    assert learned.saved_nano == 48 * 2_000
    assert learned.lower == pytest.approx(0.8654, abs=1e-4)
    (forgot,) = agreements(uses(*[True] * 100, *[True] * 40, *[False] * 10))
    assert not forgot.good
    (few,) = agreements(uses(*[True] * 19))
    assert not few.good


def test_cost_shows_what_the_apprentice_would_have_saved(home, capsys) -> None:
    with closing(ExperienceStore(user_paths().experience_file)) as records:
        for _ in range(20):
            records.add_prediction(Prediction("read_file", "embedded", True, 1_000_000))
        records.add_prediction(Prediction("list_files", "embedded", False, 1_000_000))
    assert main(["cost", "--json"]) == 0
    good, bad = json.loads(capsys.readouterr().out)["apprentice"]
    assert good == {
        "model": "embedded",
        "tool": "read_file",
        "uses": 20,
        "alike": 20,
        "lower": 0.8389,
        "good": True,
        "would_save_usd": "0.02",
    }
    assert (bad["good"], bad["would_save_usd"]) == (False, "0")
    assert main(["cost"]) == 0
    printed = capsys.readouterr().out
    assert "would have saved $0.02" in printed
    assert "20 of 20" in printed
