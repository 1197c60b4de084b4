"""The data of the settings screen."""

from pathlib import Path

import pytest

from ecoshell.errors import SettingsError
from ecoshell.settings import descriptions, section_descriptions
from ecoshell.settings.convert import table_fields
from ecoshell.settings.edit import write_settings
from ecoshell.settings.overview import Overview, SettingRow, overview
from ecoshell.settings.schema import Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def row(listed: Overview, key: str) -> SettingRow:
    (setting,) = (setting for setting in listed.rows if setting.key == key)
    return setting


def test_settings_and_tables_have_descriptions() -> None:
    assert [setting.key for setting in descriptions().values() if not setting.text] == []
    tables = [name for name in table_fields(Settings) if name != "model"]
    assert [name for name in tables if not section_descriptions().get(name)] == []


def test_kind_of_a_setting_follows_from_its_type() -> None:
    kinds = {setting.key: setting.kind for setting in descriptions().values()}
    assert kinds["agent.registration"] == "choice"
    assert kinds["tools.allow_private_addresses"] == "switch"
    assert kinds["models.NAME.native_tools"] == "switch"
    assert kinds["approval.allow"] == "list"
    assert kinds["budget.session"] == kinds["model"] == kinds["tui.theme"] == "text"
    assert (
        kinds["agent.max_steps"]
        == kinds["local.threads"]
        == kinds["models.NAME.price.input"]
        == "value"
    )
    registration = descriptions()["agent", "registration"]
    assert registration.choices == ("auto", "names", "all", "all_text")


def test_rows_have_value_default_and_origin(file: Path) -> None:
    file.write_text('[agent]\nmax_steps = 5\n[approval]\nallow = ["read_file", "a\\"b"]\n')
    listed = overview(file, {"ECOSHELL_MODEL": "openai/x"})
    assert listed.problems == ()
    steps, model, day = (
        row(listed, "agent.max_steps"),
        row(listed, "model"),
        row(listed, "budget.day"),
    )
    assert (steps.value, steps.default, steps.origin) == ("5", "auto", f"{file} line 2")
    assert (model.value, model.default, model.variable) == (
        "openai/x",
        "embedded",
        "ECOSHELL_MODEL",
    )
    assert (day.value, day.default, day.origin, day.variable) == ("", "", "default", "")
    assert row(listed, "approval.allow").value == '["read_file", "a\\"b"]'
    assert (row(listed, "tools.prices").value, row(listed, "tools.prices").default) == ("", "")


def test_shown_value_can_be_typed_again_without_a_change(file: Path) -> None:
    file.write_text(
        'model = "x"\n[agent]\nmax_steps = 5\n[registration]\nnames_share = 0.25\n[approval]\nallow = ["read_file"]\n'
        '[tools]\nallow_private_addresses = true\n[models."a/b".price]\ninput = "0.20"\noutput = "0.80"\n'
    )
    content = file.read_text()
    for setting in overview(file, {}).rows:
        if setting.origin != "default" and "models" not in setting.path[:1]:
            write_settings(file, setting.changes(setting.value))
    assert file.read_text() == content


def test_unpriced_model_takes_input_and_output_prices_together(file: Path) -> None:
    listed = overview(file, {}, ["openai/x"])
    price = row(listed, 'models."openai/x".price')
    write_settings(file, price.changes("0.20, 0.80"))
    priced = overview(file, {})
    assert row(priced, 'models."openai/x".price.output').value == "0.80"
    with pytest.raises(SettingsError, match="needs two numbers"):
        price.changes("0.20")


def test_removing_a_required_price_removes_both(file: Path) -> None:
    file.write_text('[models.x]\ncontext = 5\n[models.x.price]\ninput = "1"\noutput = "2"\n')
    write_settings(file, row(overview(file, {}), "models.x.price.input").changes(None))
    listed = overview(file, {})
    assert row(listed, "models.x.price").value == ""
    assert row(listed, "models.x.context").value == "5"


def test_complaint_precedes_writing(file: Path) -> None:
    listed = overview(file, {})
    steps = row(listed, "agent.max_steps")
    assert 'agent.max_steps must be "auto" or a whole number of at least 1' in listed.complaint(
        steps.changes("0")
    )
    assert listed.complaint(steps.changes("7")) == ""
    assert listed.complaint(steps.changes("")) == ""
    assert not file.exists()


def test_invalid_settings_have_problems_instead_of_rows(file: Path) -> None:
    file.write_text("[agent]\nmax_steps = 'many'\n")
    listed = overview(file, {"ECOSHELL_BUGET_DAY": "1"})
    assert listed.rows == ()
    assert [problem.message.partition(": ")[0] for problem in listed.problems] == [
        f"{file} line 2",
        "ECOSHELL_BUGET_DAY",
    ]


def test_presets_have_rows_among_those_of_the_modes(file: Path) -> None:
    file.write_text('[modes.umi.presets.frugal]\nplanner = "embedded"\n')
    rows = overview(file, {}, ["openai/x"]).rows
    of_modes = [index for index, setting in enumerate(rows) if setting.path[0] == "modes"]
    assert of_modes == list(range(of_modes[0], of_modes[0] + 7))
    mine = next(setting for setting in rows if setting.key == "modes.umi.presets.frugal.planner")
    assert (mine.value, mine.description.text) == ("embedded", "Model that decides the next step.")
