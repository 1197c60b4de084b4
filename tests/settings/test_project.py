import json
from pathlib import Path

import pytest
from full_disk import no_file_over

from ecoshell.agent.project_rules import ProjectRules
from ecoshell.errors import StoreError


def test_a_rule_holds_in_its_project_only_and_for_the_next_process(tmp_path: Path) -> None:
    file, project = tmp_path / "data" / "approvals.json", tmp_path / "project"
    project.mkdir()
    ProjectRules(file).allow(project, "write_file")
    ProjectRules(file).allow(project, "run_command:make test")
    ProjectRules(file).allow(project, "write_file")
    assert ProjectRules(file).rules(project) == ("write_file", "run_command:make test")
    assert ProjectRules(file).rules(tmp_path) == ()


def test_nothing_is_written_into_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    ProjectRules(tmp_path / "data" / "approvals.json").allow(project, "write_file")
    assert list(project.iterdir()) == []


def test_a_project_is_known_by_its_real_path(tmp_path: Path) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project)
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.allow(link, "write_file")
    assert rules.rules(project) == ("write_file",)


@pytest.mark.parametrize("content", ["{", "[]", '{"/p": "write_file"}', "\xff"])
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, content: str) -> None:
    file = tmp_path / "approvals.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(StoreError, match=r"approvals\.json is damaged"):
        ProjectRules(file).allow(tmp_path, "write_file")
    assert file.read_text(encoding="latin-1") == content


def test_a_rule_that_cannot_be_written_is_told_to_hold_for_this_session(tmp_path: Path) -> None:
    longest_name = "a" * 255  # the temporary file beside it would need a longer one
    with pytest.raises(StoreError, match="cannot be written") as caught:
        ProjectRules(tmp_path / longest_name).allow(tmp_path, "write_file")
    assert "session" in caught.value.kept
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_file_is_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "approvals.json"
    ProjectRules(file).allow(tmp_path, "write_file")
    assert list(tmp_path.iterdir()) == [file]
    assert json.loads(file.read_text()) == {str(tmp_path.resolve()): ["write_file"]}


def test_trust_in_instructions_holds_for_this_text_of_this_project(tmp_path: Path) -> None:
    file = tmp_path / "approvals.json"
    assert ProjectRules(file).trusts(tmp_path, "Use tabs.") == (None, False)
    ProjectRules(file).allow(tmp_path, "write_file")
    ProjectRules(file).trust(tmp_path, "Use tabs.", trusted=True)
    assert ProjectRules(file).trusts(tmp_path, "Use tabs.") == (True, False)
    assert ProjectRules(file).trusts(tmp_path, "Use blanks.") == (None, True)
    assert ProjectRules(file).trusts(tmp_path / "other", "Use tabs.") == (None, False)
    assert ProjectRules(file).rules(tmp_path) == ("write_file",)


def test_a_new_word_on_instructions_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.trust(tmp_path, "Use tabs.", trusted=True)
    rules.trust(tmp_path, "Use blanks.", trusted=False)
    assert rules.trusts(tmp_path, "Use blanks.") == (False, False)
    assert rules.trusts(tmp_path, "Use tabs.") == (None, True)


def test_a_rule_that_does_not_fit_on_the_disk_is_not_kept_and_the_others_are(tmp_path: Path) -> None:
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.allow(tmp_path, "write_file")
    with no_file_over(8), pytest.raises(StoreError, match="cannot be written") as failed:
        rules.allow(tmp_path, "edit_file")
    assert failed.value.kept == "Your decision applies until this session ends."
    assert failed.value.fix == "Free some space and try again."
    assert rules.rules(tmp_path) == ("write_file",)
    assert [file.name for file in tmp_path.iterdir()] == ["approvals.json"]
