"""Everything that can be talked with, as the settings, the keys and the price file say."""

from pathlib import Path

import pytest
from adapter_files import make_adapter

from ecoshell.assembly.inventory import Inventory
from ecoshell.assembly.shell import assemble
from ecoshell.budget import Price, Rates
from ecoshell.errors import ModelMissing
from ecoshell.models import HERE, ModelRow
from ecoshell.models.keys import Keys
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.settings import load_settings

MINE = """
[models."mine/model"]
context = 4096
price = { input = 0.5, output = 1 }
[models."openai/private"]
base_url = "http://127.0.0.1:1/v1"
"""


class NoVault:
    def get_password(self, service_name: str, username: str) -> None:
        return None


@pytest.fixture
def rows(tmp_path: Path):
    """Lists the models, by name."""
    settings_file = tmp_path / "config.toml"
    settings_file.write_text(MINE)
    folder = tmp_path / "models"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "small.gguf").write_bytes(b"GGUF")

    def listed(barred: dict[str, str] | None = None, **environ: str) -> dict[str, ModelRow]:
        settings = load_settings(settings_file, {}).settings
        keys = Keys(environ, NoVault())
        found = Inventory(settings, folder, barred=barred or {}, keys=keys).rows()
        names = [row.name for row in found]
        assert len(set(names)) == len(names)
        return {row.name: row for row in found}

    return listed


def test_this_machine_comes_first_and_costs_nothing(rows, tmp_path):
    first, second, *_ = rows().values()
    assert (first.name, first.provider, first.at_hand) == ("embedded", HERE, True)
    assert second.name == f"local:{tmp_path / 'models' / 'deep' / 'small.gguf'}"
    assert (second.local, second.state, second.price.summary()) == (True, "installed", "free")


def test_an_adapter_in_the_folder_is_no_model(rows, tmp_path):
    adapter = make_adapter(tmp_path / "models" / "adapter.gguf", scale=0)
    assert [name for name in rows() if str(adapter) in name] == []


def test_without_a_key_a_model_says_which_variable_is_missing_and_is_not_at_hand(rows):
    row = rows()["gpt-4o-mini"]
    assert (row.ready, row.state, row.at_hand) == (False, "no key", False)
    assert "OPENAI_API_KEY" in row.missing
    assert (row.context, row.max_output) == (128_000, 16_384)


def test_with_a_key_it_is_ready(rows):
    row = rows(OPENAI_API_KEY="sk-something")["gpt-4o-mini"]
    assert (row.ready, row.state, row.at_hand, row.missing) == (True, "has a key", True, "")


def test_a_provider_that_signs_in_otherwise_is_not_said_to_lack_a_key(rows):
    row = next(row for row in rows().values() if row.provider == "bedrock")
    assert (row.ready, row.state, row.missing, row.at_hand) == (None, "?", "", False)


def test_models_of_the_settings_are_at_hand_with_their_own_facts(rows):
    mine, private = rows()["mine/model"], rows()["openai/private"]
    assert (mine.context, mine.price.source, mine.at_hand) == (4096, "your settings", True)
    assert (private.ready, private.state, private.missing) == (True, "own server", "")


def test_a_barred_model_says_why(rows):
    row = rows({"openai/greedy": "it billed too much"})["openai/greedy"]
    assert (row.state, row.blocked, row.at_hand) == ("blocked", "it billed too much", True)


async def test_the_shell_lists_them_with_the_price_told_for_this_run(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    user_paths().settings_file.parent.mkdir(parents=True)
    user_paths().settings_file.write_text(MINE)
    (tmp_path / "s.jsonl").write_text('{"text": "yes"}\n')
    name = f"script:{tmp_path / 's.jsonl'}"
    shell = await assemble(Options(model=name, price=(1, 4)))
    try:
        found = {row.name: row for row in await shell.models()}
    finally:
        await shell.aclose()
    assert found["openai/private"].state == "own server"
    assert found[name].price == Price(Rates(1, 1, 1, 4, 4), source="--price")
    assert len(found) > 1_000


async def test_without_llama_local_models_are_missing_before_the_first_question(
    rows, monkeypatch, tmp_path
):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("ecoshell.models.llama.find_spec", lambda _: None)
    assert rows()["embedded"].ready is False
    with pytest.raises(ModelMissing, match="llama-cpp-python, which is not installed"):
        await assemble(Options(model="embedded"))
