"""The apprentice predicts a paid model's calls; its predictions are recorded, but never run, billed or waited for."""

import asyncio
import json
from contextlib import asynccontextmanager, closing
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn

from ecoshell.assembly.shell import assemble
from ecoshell.cli import main
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.events import BudgetSettled, CallFinished, Notice, TurnFinished
from ecoshell.messages import Call, Message
from ecoshell.models import Reply, Request, Traits
from ecoshell.models.observed import SettledReply
from ecoshell.models.script import ScriptModel
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell_train import apprentice as apprentice_module
from ecoshell_train.agreement import Prediction, Predictions, agreements
from ecoshell_train.apprentice import Apprentice, local_model

PRICED = (Decimal(1), Decimal(1))
ON = '[plugins]\nenabled = ["train"]\ntrain = { apprentice = "embedded" }\n'
PAID = Traits("paid", None, None, None, native_tools=True, local=False)
READ = say("", "read_file", path="notes.txt")
REQUEST = Request((Message("user", "read it"),))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ECOSHELL_AGENT_CONTEXT", "off")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("one\ntwo\nthree\n")
    return workspace


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
    async def opened(paid, apprentice, *, settings=ON, price=PRICED):
        user_paths().settings_file.parent.mkdir(parents=True, exist_ok=True)
        user_paths().settings_file.write_text(settings)
        models = []

        def local_model(name, paths):
            if isinstance(apprentice, Exception):
                raise apprentice
            models.append(ScriptModel(script("apprentice", apprentice)))
            return models[-1]

        monkeypatch.setattr(apprentice_module, "local_model", local_model)
        options = Options(model=f"script:{script('paid', paid)}", price=price, workspace=home)
        shell = await assemble(options, None)
        shell.models = models
        try:
            yield shell
        finally:
            await shell.aclose()

    return opened


def recorded() -> list[Prediction]:
    with closing(Predictions.under(user_paths())) as records:
        return records.of()


def apprentice_in(shell) -> Apprentice:
    ((_, apprentice),) = shell.deps.models.factory._observers
    return apprentice


async def finish_predictions(shell) -> None:
    if (working := apprentice_in(shell)._working) is not None:
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
    [("", PRICED), (ON, None)],
    ids=["off by default", "free model"],
)
async def test_only_paid_models_are_shadowed_and_only_if_the_setting_is_on(
    settings, price, shadowed, home
) -> None:
    async with shadowed([READ, finish("Done.")], [READ], settings=settings, price=price) as shell:
        await turn(shell, "read notes.txt")
        assert shell.models == []


async def test_a_turn_ends_without_waiting_for_the_apprentice(shadowed, home) -> None:
    async with shadowed([READ, finish("Done.")], [READ]) as shell:
        apprentice, started = apprentice_in(shell), asyncio.Event()

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
    news = []
    apprentice = Apprentice(
        "embedded",
        lambda: ScriptModel(script("apprentice", lines)),
        lambda: Predictions.under(Paths.under(tmp_path)),
    )
    reply = Reply("", (Call("read_file", {"path": "notes.txt"}),))
    for use in range(25):
        news += [
            (use, text)
            for text in apprentice.observe(SettledReply("single", REQUEST, reply, PAID, 1_000))
        ]
        await apprentice._working
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


def test_matches_and_possible_savings_are_shown(home, capsys) -> None:
    with closing(Predictions.under(user_paths())) as records:
        for _ in range(20):
            records.add(Prediction("read_file", "embedded", True, 1_000_000))
        records.add(Prediction("list_files", "embedded", False, 1_000_000))
    assert main(["experience", "apprentice", "--json"]) == 0
    good, bad = json.loads(capsys.readouterr().out)["rows"]
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
    assert main(["experience", "apprentice"]) == 0
    printed = capsys.readouterr().out
    assert "would have saved $0.02" in printed
    assert "20 of 20" in printed


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('{ aprentice = "embedded" }', "no setting aprentice"),
        ("{ apprentice = 3 }", "embedded or local"),
    ],
)
async def test_an_invalid_setting_disables_the_plugin(setting, words, shadowed) -> None:
    settings = f'[plugins]\nenabled = ["train"]\ntrain = {setting}\n'
    async with shadowed([finish("Done.")], [], settings=settings) as shell:
        events = await turn(shell, "hello")
    assert [words in notice.text for notice in of(events, Notice)] == [True]


def test_the_apprentice_must_be_a_local_model() -> None:
    with pytest.raises(UsageError, match="gpt-4o is not a local model"):
        local_model("gpt-4o", user_paths())


class _Faulty:
    def __init__(self) -> None:
        self.calls = 0

    def observe(self, settled):
        self.calls += 1
        raise ValueError("no idea")

    async def aclose(self) -> None: ...


async def test_an_observer_that_fails_is_reported_once_and_the_turn_continues(
    shadowed, monkeypatch
) -> None:
    observer = _Faulty()
    monkeypatch.setattr(apprentice_module, "apprentice_of", lambda settings, paths: observer)
    async with shadowed([READ, finish("Done.")], []) as shell:
        events = await turn(shell, "read notes.txt")
    notices = [notice.text for notice in of(events, Notice) if "plugin train failed" in notice.text]
    assert (len(notices), observer.calls) == (1, 1)
    assert of(events, TurnFinished)[0].status == "answered"
