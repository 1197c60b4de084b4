"""Every setting as a person looks at it."""

from pathlib import Path

import pytest

from ecoshell.errors import SettingsError
from ecoshell.settings.edit import write_settings
from ecoshell.settings.overview import Overview, SettingRow, overview
from ecoshell.settings.schema import Settings, descriptions, section_words


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def row(found: Overview, key: str) -> SettingRow:
    (one,) = (one for one in found.rows if one.key == key)
    return one


def test_every_setting_and_every_table_says_what_it_is() -> None:
    assert [one.key for one in descriptions().values() if not one.text] == []
    tables = [name for name in Settings.model_fields if name != "model"]
    assert [name for name in tables if not section_words().get(name)] == []


def test_the_kind_of_a_setting_follows_from_its_type() -> None:
    kinds = {one.key: one.kind for one in descriptions().values()}
    assert kinds["agent.registration"] == "choice"
    assert kinds["tools.allow_private_addresses"] == "switch"
    assert kinds["models.NAME.native_tools"] == "switch"
    assert kinds["approval.allow"] == "list"
    assert kinds["budget.session"] == kinds["model"] == kinds["tui.theme"] == "text"
    assert kinds["agent.max_steps"] == kinds["local.threads"] == kinds["models.NAME.price.input"] == "value"
    registration = descriptions()["agent", "registration"]
    assert registration.choices == ("auto", "names", "all", "all_text")


def test_each_row_has_its_value_its_default_and_where_it_comes_from(file: Path) -> None:
    file.write_text('[agent]\nmax_steps = 5\n[approval]\nallow = ["read_file", "a\\"b"]\n')
    found = overview(file, {"ECOSHELL_MODEL": "openai/x"})
    assert found.problems == ()
    steps, model, day = row(found, "agent.max_steps"), row(found, "model"), row(found, "budget.day")
    assert (steps.value, steps.default, steps.origin) == ("5", "auto", f"{file} line 2")
    assert (model.value, model.default, model.variable) == ("openai/x", "embedded", "ECOSHELL_MODEL")
    assert (day.value, day.default, day.origin, day.variable) == ("", "", "default", "")
    assert row(found, "approval.allow").value == '["read_file", "a\\"b"]'
    assert (row(found, "tools.prices").value, row(found, "tools.prices").default) == ("", "")


def test_what_is_shown_can_be_typed_again_and_changes_nothing(file: Path) -> None:
    file.write_text(
        'model = "x"\n[agent]\nmax_steps = 5\n[registration]\nnames_share = 0.25\n[approval]\nallow = ["read_file"]\n'
        '[tools]\nallow_private_addresses = true\n[models."a/b".price]\ninput = "0.20"\noutput = "0.80"\n'
    )
    before = file.read_text()
    for one in overview(file, {}).rows:
        if one.origin != "default" and "models" not in one.path[:1]:
            write_settings(file, one.changes(one.value))
    assert file.read_text() == before


def test_a_model_without_a_price_takes_input_and_output_together(file: Path) -> None:
    found = overview(file, {}, ["openai/x"])
    price = row(found, 'models."openai/x".price')
    write_settings(file, price.changes("0.20, 0.80"))
    priced = overview(file, {})
    assert row(priced, 'models."openai/x".price.output').value == "0.80"
    with pytest.raises(SettingsError, match="needs two numbers"):
        price.changes("0.20")


def test_taking_out_a_price_that_another_needs_takes_out_both(file: Path) -> None:
    file.write_text('[models.x]\ncontext = 5\n[models.x.price]\ninput = "1"\noutput = "2"\n')
    write_settings(file, row(overview(file, {}), "models.x.price.input").changes(None))
    found = overview(file, {})
    assert row(found, "models.x.price").value == ""
    assert row(found, "models.x.context").value == "5"


def test_a_complaint_comes_before_anything_is_written(file: Path) -> None:
    found = overview(file, {})
    steps = row(found, "agent.max_steps")
    assert 'agent.max_steps must be "auto" or a whole number of at least 1' in found.complaint(steps.changes("0"))
    assert found.complaint(steps.changes("7")) == ""
    assert found.complaint(steps.changes("")) == ""
    assert not file.exists()


def test_settings_that_are_wrong_have_problems_instead_of_rows(file: Path) -> None:
    file.write_text("[agent]\nmax_steps = 'many'\n")
    found = overview(file, {"ECOSHELL_BUGET_DAY": "1"})
    assert found.rows == ()
    assert [problem.message.partition(": ")[0] for problem in found.problems] == [
        f"{file} line 2",
        "ECOSHELL_BUGET_DAY",
    ]


def test_each_preset_has_rows_of_its_own_among_those_of_the_modes(file: Path) -> None:
    file.write_text('[modes.umi.presets.frugal]\nplanner = "embedded"\n')
    rows = overview(file, {}, ["openai/x"]).rows
    of_modes = [at for at, one in enumerate(rows) if one.path[0] == "modes"]
    assert of_modes == list(range(of_modes[0], of_modes[0] + 7))
    mine = next(one for one in rows if one.key == "modes.umi.presets.frugal.planner")
    assert (mine.value, mine.description.text) == ("embedded", "Who decides what comes next.")
