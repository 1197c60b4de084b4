import json
from pathlib import Path

import pytest
from full_disk import no_file_over

from ecoshell.agent.project_rules import ProjectRules
from ecoshell.errors import StoreError


def test_rule_applies_only_to_its_project_and_survives_the_process(tmp_path: Path) -> None:
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


def test_project_is_identified_by_its_real_path(tmp_path: Path) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project)
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.allow(link, "write_file")
    assert rules.rules(project) == ("write_file",)


@pytest.mark.parametrize("content", ["{", "[]", '{"/p": "write_file"}', "\xff"])
def test_damaged_file_is_reported_and_unchanged(tmp_path: Path, content: str) -> None:
    file = tmp_path / "approvals.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(StoreError, match=r"approvals\.json is damaged"):
        ProjectRules(file).allow(tmp_path, "write_file")
    assert file.read_text(encoding="latin-1") == content


def test_unwritable_rule_applies_for_this_session(tmp_path: Path) -> None:
    longest_name = "a" * 255  # the temporary file beside it would need a longer one
    with pytest.raises(StoreError, match="cannot be written") as caught:
        ProjectRules(tmp_path / longest_name).allow(tmp_path, "write_file")
    assert "session" in caught.value.kept
    assert list(tmp_path.iterdir()) == []


def test_temporary_file_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "approvals.json"
    ProjectRules(file).allow(tmp_path, "write_file")
    assert list(tmp_path.iterdir()) == [file]
    assert json.loads(file.read_text()) == {str(tmp_path.resolve()): ["write_file"]}


def test_trust_applies_to_one_text_of_one_project(tmp_path: Path) -> None:
    file = tmp_path / "approvals.json"
    assert ProjectRules(file).trusts(tmp_path, "Use tabs.") == (None, False)
    ProjectRules(file).allow(tmp_path, "write_file")
    ProjectRules(file).trust(tmp_path, "Use tabs.", trusted=True)
    assert ProjectRules(file).trusts(tmp_path, "Use tabs.") == (True, False)
    assert ProjectRules(file).trusts(tmp_path, "Use blanks.") == (None, True)
    assert ProjectRules(file).trusts(tmp_path / "other", "Use tabs.") == (None, False)
    assert ProjectRules(file).rules(tmp_path) == ("write_file",)


def test_later_trust_decision_replaces_the_earlier_one(tmp_path: Path) -> None:
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.trust(tmp_path, "Use tabs.", trusted=True)
    rules.trust(tmp_path, "Use blanks.", trusted=False)
    assert rules.trusts(tmp_path, "Use blanks.") == (False, False)
    assert rules.trusts(tmp_path, "Use tabs.") == (None, True)


def test_rule_that_does_not_fit_on_the_disk_leaves_the_others(tmp_path: Path) -> None:
    rules = ProjectRules(tmp_path / "approvals.json")
    rules.allow(tmp_path, "write_file")
    with no_file_over(8), pytest.raises(StoreError, match="cannot be written") as failed:
        rules.allow(tmp_path, "edit_file")
    assert failed.value.kept == "Your decision applies until this session ends."
    assert failed.value.fix == "Free some space and try again."
    assert rules.rules(tmp_path) == ("write_file",)
    assert [file.name for file in tmp_path.iterdir()] == ["approvals.json"]
