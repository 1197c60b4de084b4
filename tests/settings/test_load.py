from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell.errors import SettingsError
from ecoshell.settings import DEFAULT, Loaded, load_settings, read_settings, variables


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def loaded(file: Path, text: str, environ: Mapping[str, str] | None = None) -> Loaded:
    file.write_text(text)
    return load_settings(file, environ or {})


def refused(file: Path, text: str, environ: Mapping[str, str] | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        loaded(file, text, environ)
    return caught.value


def test_settings_have_defaults_without_a_file(file: Path) -> None:
    settings = load_settings(file, {}).settings
    assert (settings.model, settings.agent.max_steps, settings.agent.registration) == (
        "embedded",
        "auto",
        "auto",
    )
    assert settings.budget.day is None
    assert settings.approval.allow == ()


def test_environment_overrides_file_and_file_overrides_default(file: Path) -> None:
    text = '[agent]\nmax_steps = 5\nanswer_tokens = 99\n[budget]\nday = 2.00\nmonth = "20000tok"\n'
    result = loaded(
        file, text, {"ECOSHELL_AGENT_MAX_STEPS": "7", "ECOSHELL_MODEL": "openai/gpt-4o-mini"}
    )
    assert result.settings.agent.max_steps == 7
    assert result.settings.agent.answer_tokens == 99
    assert result.settings.budget.day == "2.00"
    assert result.settings.budget.month == "20000tok"
    origins = {".".join(path): origin for path, _, origin in result.rows()}
    assert origins["agent.max_steps"] == "ECOSHELL_AGENT_MAX_STEPS"
    assert origins["agent.answer_tokens"] == f"{file} line 3"
    assert origins["agent.presentation"] == DEFAULT


def test_prices_are_never_floats(file: Path) -> None:
    text = '[models."openai/x"]\nprice = { input = 0.1, output = "0.30", cached_input = 0.01 }\n'
    price = loaded(file, text).settings.models.named["openai/x"].price
    assert price is not None
    assert (price.input, price.output, price.cached_input) == (
        Decimal("0.1"),
        Decimal("0.30"),
        Decimal("0.01"),
    )
    assert price.reasoning is None


def test_unknown_key_is_refused_with_its_line_and_a_suggestion(file: Path) -> None:
    error = refused(file, "# first\n\n[agent]\n# two\nregistration = 'names'\n\nmax_step = 3\n")
    assert error.message.endswith("config.toml line 7: unknown key agent.max_step")
    assert error.fix == "did you mean agent.max_steps?"
    assert error.exit_status == 2


@pytest.mark.parametrize(
    ("text", "key", "right"),
    [
        ("modle = 'x'", "modle", "model"),
        ("[agnet]\nmax_steps = 1", "agnet", "agent"),
        ("max_steps = 1", "max_steps", "agent.max_steps"),
        (
            '[models."a b".price]\ninput = 1\noutput = 2\ncached = 1',
            'models."a b".price.cached',
            'models."a b".price',
        ),
    ],
)
def test_misplaced_or_misspelt_key_has_a_suggestion(
    file: Path, text: str, key: str, right: str
) -> None:
    error = refused(file, text)
    assert f"unknown key {key}" in error.message
    assert right in error.fix


@pytest.mark.parametrize(
    ("text", "line", "demand"),
    [
        (
            "[agent]\nmax_steps = 'many'",
            2,
            'agent.max_steps must be "auto" or a whole number of at least 1',
        ),
        (
            "[plugins]\nenabled = 'git'",
            2,
            'plugins.enabled must be a list, such as ["one", "two"], not',
        ),
        ("[agent]\nmax_steps = true", 2, 'agent.max_steps must be "auto" or a whole number'),
        ("[agent]\nmax_steps = 0", 2, 'must be "auto" or a whole number of at least 1'),
        (
            "[agent]\n\nregistration = 'some'",
            3,
            "registration must be 'auto', 'names', 'all' or 'all_text', not 'some'",
        ),
        (
            "[agent]\ncompact_at = 1.5",
            2,
            'agent.compact_at must be "off" or a number from 0.3 to 0.95',
        ),
        (
            "[agent]\ncompact_at = true",
            2,
            'agent.compact_at must be "off" or a number from 0.3 to 0.95',
        ),
        (
            "[agent]\ntemperature = 'hot'",
            2,
            'agent.temperature must be "auto" or a number from 0 to 2',
        ),
        (
            "[agent]\ntemperature = 2.1",
            2,
            'agent.temperature must be "auto" or a number from 0 to 2',
        ),
        (
            "[agent]\ntemperature = nan",
            2,
            'agent.temperature must be "auto" or a number from 0 to 2',
        ),
        (
            "[agent]\ntemperature = true",
            2,
            'agent.temperature must be "auto" or a number from 0 to 2',
        ),
        ("[budget]\nday = '-3'", 2, "budget.day must be dollars"),
        ("[budget]\nday = 0", 2, "budget.day must be dollars"),
        ("[budget]\nday = nan", 2, "budget.day must be dollars"),
        ("[budget]\nday = 1e999999999999", 2, "budget.day must be dollars"),
        ("[budget]\nday = true", 2, "budget.day must be dollars"),
        ("[local]\nthreads = 0", 2, 'local.threads must be "auto" or a whole number of at least 1'),
        (
            "[approval]\nallow = [\n'read_file',\n3]",
            2,
            "approval.allow has an entry that must be text, not '3'",
        ),
        ("agent = 3", 1, "agent must be a table"),
        ('[models.x]\nprice = "1,2"', 2, "must be a table, such as {input = …, output = …}, not"),
        ("[registration]\nnames_share = 1.5", 2, "must be a number above 0, up to 1"),
        ("[registration]\nnames_share = true", 2, "must be a number"),
        ("[models.x]\nbase_url = 'ftp://x'", 2, "must be an address"),
        ("[models.x.price]\ninput = 1", 1, "models.x.price.output is missing"),
        ("[models.x.price]\ninput = -1\noutput = 1", 2, "must be a number from 0 to 1,000,000"),
        ("[models.x.price]\ninput = inf\noutput = 1", 2, "models.x.price.input"),
        ("[graph]\nalpha = 1.5", 2, "must be a number from 0 to 1"),
        ("[graph]\nmax_cost = 'off'", 2, 'graph.max_cost must be dollars, such as "0.05", not'),
        ("[graph]\nmax_cost = 0", 2, "graph.max_cost must be dollars"),
        ("[graph]\nchecker = ' '", 2, "graph.checker must not be empty"),
        ("model = ''", 1, "model must not be empty"),
    ],
)
def test_invalid_value_is_refused_with_its_line_and_the_requirement(
    file: Path, text: str, line: int, demand: str
) -> None:
    error = refused(file, text)
    assert f"config.toml line {line}: " in error.message
    assert demand in error.message
    assert error.fix


def test_problems_are_listed_in_the_order_of_the_file(file: Path) -> None:
    file.write_text("[budget]\nday = 'x'\n[agent]\nmax_step = 1\nmax_steps = 'y'\n")
    result, problems = read_settings(file, {"ECOSHELL_BUGET_DAY": "1"})
    assert result is None
    assert [problem.message.partition(": ")[0].rpartition("/")[2] for problem in problems] == [
        "config.toml line 2",
        "config.toml line 4",
        "config.toml line 5",
        "ECOSHELL_BUGET_DAY",
    ]
    with pytest.raises(SettingsError, match=r"3 more problems follow: `ecoshell config check`"):
        load_settings(file, {"ECOSHELL_BUGET_DAY": "1"})


def test_invalid_toml_is_refused_with_its_line(file: Path) -> None:
    assert f"{file} line 2: this is not TOML" in refused(file, "[agent]\nmax_steps = yes\n").message
    assert (
        f"{file} line 3: this is not TOML"
        in refused(file, "[agent]\nmax_steps = 1\nmax_steps = 2\n").message
    )
    assert "this is not TOML" in refused(file, 'model = """never closed\n').message


def test_invalid_utf8_is_refused_with_its_line(file: Path) -> None:
    file.write_bytes(b'# fine\nmodel = "\xff"\n')
    with pytest.raises(SettingsError, match=r"config\.toml line 2: this is not UTF-8"):
        load_settings(file, {})


def test_byte_order_mark_is_accepted(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfmodel = "script:a.jsonl"\n')
    assert load_settings(file, {}).settings.model == "script:a.jsonl"


def test_folder_instead_of_the_file_is_reported(file: Path) -> None:
    file.mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(file, {})


def test_variable_may_have_one_or_two_underscores_for_the_dot(file: Path) -> None:
    for name in ("ECOSHELL_AGENT_MAX_STEPS", "ECOSHELL_AGENT__MAX_STEPS"):
        assert load_settings(file, {name: "3"}).settings.agent.max_steps == 3


def test_variables_set_lists_numbers_and_booleans(file: Path) -> None:
    settings = load_settings(
        file,
        {
            "ECOSHELL_APPROVAL_ALLOW": '["write_file", "run_command:git status*"]',
            "ECOSHELL_TOOLS_ALLOW_PRIVATE_ADDRESSES": "true",
            "ECOSHELL_LOCAL_N_GPU_LAYERS": "-1",
            "ECOSHELL_BUDGET_DAY": "2.00",
            "ECOSHELL_REGISTRATION_NAMES_SHARE": "0.25",
            "ECOSHELL_BUDGET_PROJECT": "42",
            "ECOSHELL_GRAPH_CHECKER": "true",
        },
    ).settings
    assert (settings.budget.project, settings.graph.checker) == ("42", "true")
    assert settings.approval.allow == ("write_file", "run_command:git status*")
    assert settings.tools.allow_private_addresses is True
    assert settings.local.n_gpu_layers == -1
    assert settings.budget.day == "2.00"
    assert settings.registration.names_share == 0.25


def test_invalid_variable_is_named_instead_of_the_file(file: Path) -> None:
    error = refused(file, "[agent]\nmax_steps = 3\n", {"ECOSHELL_AGENT_MAX_STEPS": "many"})
    assert error.message.startswith("ECOSHELL_AGENT_MAX_STEPS: agent.max_steps must be")


def test_unknown_variable_is_refused_with_a_suggestion(file: Path) -> None:
    error = refused(file, "", {"ECOSHELL_MODLE": "x"})
    assert error.message == "ECOSHELL_MODLE: unknown variable"
    assert error.fix == "did you mean ECOSHELL_MODEL?"


def test_home_folder_and_empty_variables_are_not_settings(file: Path) -> None:
    assert (
        load_settings(file, {"ECOSHELL_HOME": "/x", "ECOSHELL_MODEL": ""}).settings.model
        == "embedded"
    )


def test_settings_have_distinct_variables() -> None:
    names = variables()
    assert names["ECOSHELL_AGENT_MAX_STEPS"] == ("agent", "max_steps")
    assert names.pop("ECOSHELL_LEDGER") == names["ECOSHELL_BUDGET_LEDGER"]  # the short one
    assert len(set(names.values())) == len(names)


def test_tables_have_no_variable() -> None:
    assert {"ECOSHELL_MODELS", "ECOSHELL_AGENT"}.isdisjoint(variables())


@pytest.mark.parametrize(
    "text",
    [
        '[models.x]\napi_key = "sk-verysecret"',
        '[models.x]\nbase_url = "https://me:sk-verysecret@host/v1"',
        'openai_api_key = "sk-verysecret"',
    ],
)
def test_api_key_in_the_file_is_refused_without_being_repeated(file: Path, text: str) -> None:
    error = refused(file, text)
    assert "verysecret" not in str(error)
    assert "keyring" in str(error)


@pytest.mark.parametrize(
    ("text", "read"), [('"0.05"', "0.05"), ("0.05", "0.05"), ('"$2"', "$2"), ('"off"', "off")]
)
def test_ask_above_accepts_dollars_or_off(file: Path, text: str, read: str) -> None:
    assert loaded(file, f"[budget]\nask_above = {text}\n").settings.budget.ask_above == read


@pytest.mark.parametrize("text", ['"20000tok"', '"-1"', '"0"', "true", '"soon"'])
def test_ask_above_refuses_other_values(file: Path, text: str) -> None:
    assert 'must be dollars, such as "0.05", or "off"' in str(
        refused(file, f"[budget]\nask_above = {text}\n")
    )


PRESETS = '[modes.umi]\npreset = "frugal"\n[modes.umi.presets.frugal]\ncaller = "embedded"\n'


def test_roles_and_presets_are_read(file: Path) -> None:
    umi = loaded(file, PRESETS, {"ECOSHELL_MODES_UMI_PLANNER": "openai/x"}).settings.modes.umi
    assert (umi.planner, umi.preset, umi.presets["frugal"].caller) == (
        "openai/x",
        "frugal",
        "embedded",
    )


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        (
            '[modes.umi]\npreset = "frugel"\n',
            "modes.umi has no preset 'frugel'; available: none",
            "",
        ),
        ('[modes.umi.presets.caller]\nplanner = "x"\n', "cannot have a preset named 'caller'", ""),
        ('[modes.umi]\nplanner = " "\n', "line 2: modes.umi.planner must not be empty", ""),
        (
            '[modes.umi.presets.frugal]\nplannr = "x"\n',
            "unknown key",
            "modes.umi.presets.frugal.planner",
        ),
        ('[modes.umi]\nsumarizer = "x"\n', "unknown key", "modes.umi.summarizer"),
    ],
)
def test_invalid_roles_and_presets_are_refused_with_the_reason(
    file: Path, text: str, message: str, fix: str
) -> None:
    error = refused(file, text)
    assert message in error.message
    assert fix in error.fix
