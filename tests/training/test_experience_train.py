"""`ecoshell experience train`: labels, report and saved file."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ecoshell.cli import main
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore, Use
from ecoshell_train.classifier import load

Shell = Callable[..., str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command in this process and return its output."""

    def run(*argv: str, status: int = 0) -> str:
        exit_status = main(list(argv))
        output = capsys.readouterr()
        assert exit_status == status, output.err
        return output.err if status else output.out

    return run


def recorded(number: int, *, by: str = "rules") -> Use:
    liked = number % 2 == 0
    text = f"Timetable {number}: departs 06:12" if liked else f"Book a holiday now, offer {number}"
    return Use(
        query=f"How do I get to town {number}?",
        tool="search",
        document_hash="d",
        arguments="{}",
        result=text,
        result_hash=str(number),
        ok=True,
        helpful=liked if by == "you" else True,
        judged_by=by,
        model="m",
        price_nano=0,
        step_nano=None,
        step_tokens=0,
        seconds=0.0,
        size_level=0,
        session="s",
        turn=number,
        call="c1",
    )


def used(count: int, *, marked: int) -> None:
    """Store uses and mark the first ones as the user."""
    user_paths().data.mkdir(parents=True, exist_ok=True)
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add(recorded(number) for number in range(count))
        for number in range(marked):
            assert store.mark("s", number, "c1", number % 2 == 0)


def test_training_on_marks_reports_accuracy(shell: Shell) -> None:
    used(40, marked=30)
    output = shell("experience", "train")
    assert "Trained on 15 helpful and 15 unhelpful results." in output
    assert "5-fold cross-validation" in output
    accuracy = {line.split()[0]: line.split()[1] for line in output.splitlines() if "±" in line}
    assert accuracy["classifier"] == "100.0%"
    assert accuracy["rules"] == "50.0%"
    assert set(accuracy) == {"classifier", "rules", "majority"}
    assert "ecoshell config set plan.judge classifier" in output
    assert load(user_paths().judge_file).weights


def test_report_as_json(shell: Shell) -> None:
    used(40, marked=30)
    record = json.loads(shell("experience", "train", "--json"))
    assert (record["examples"], record["helpful"], record["unhelpful"], record["left_out"]) == (
        30,
        15,
        15,
        0,
    )
    assert record["accuracy"]["classifier"]["mean"] == 1.0
    assert (record["pays"], record["file"]) == (True, str(user_paths().judge_file))


def test_judge_that_does_not_beat_rules_is_saved_with_a_warning(shell: Shell) -> None:
    user_paths().data.mkdir(parents=True, exist_ok=True)
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add(recorded(number) for number in range(24))
        for number in range(24):
            store.mark("s", number, "c1", number % 4 < 2)
    output = shell("experience", "train")
    assert "Warning: judges without training are at least as accurate" in output
    assert "plan.judge classifier" not in output
    assert user_paths().judge_file.exists()


def test_too_few_marks_are_refused_without_writing(shell: Shell) -> None:
    used(40, marked=12)
    output = shell("experience", "train", status=2)
    assert "6 helpful and 6 unhelpful" in output
    assert "+ or -" in output
    assert not user_paths().judge_file.exists()


def test_all_judged_adds_judgments_of_rules(shell: Shell) -> None:
    used(40, marked=20)
    record = json.loads(shell("experience", "train", "--json", "--all-judged"))
    assert (record["helpful"], record["unhelpful"]) == (30, 10)
