"""Which models are offered in the place of one that has become too dear."""

from decimal import Decimal

import pytest

from ecoshell.assembly.inventory import Inventory
from ecoshell.budget import Price, PriceBook, Rates
from ecoshell.models.keys import Keys
from ecoshell.settings.convert import to_settings
from ecoshell.settings.schema import Settings

NO_KEYS: dict[str, str] = {}


class LockedRing:
    def get_password(self, service_name, username):
        raise AssertionError("the keyring was asked")


@pytest.fixture
def names(tmp_path):
    def found(present, environ=NO_KEYS, **models):
        settings = to_settings(Settings, {"models": models.pop("models", {})})
        book = PriceBook({"script:dear": Price(Rates(*[Decimal(10)] * 5))})
        return Inventory(
            settings, tmp_path, barred={}, book=book, keys=Keys(environ, LockedRing())
        ).substitutes(present)

    return found


def test_models_of_this_machine_are_offered_but_never_the_present_one(names, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.gguf").write_bytes(b"GGUF")
    mine = f"local:{tmp_path / 'deep' / 'mine.gguf'}"
    assert names("openai/gpt-5") == ("embedded", mine)
    assert names("embedded") == (mine,)


def test_of_many_files_a_few_are_offered(names, tmp_path):
    for at in range(9):
        (tmp_path / f"{at}.gguf").write_bytes(b"GGUF")
    assert names("openai/gpt-5") == (
        "embedded",
        *(f"local:{tmp_path / f'{at}.gguf'}" for at in range(4)),
    )


def test_without_a_key_no_model_of_a_provider_is_offered(names):
    assert names("openai/gpt-5") == ("embedded",)


def test_with_a_key_a_few_models_at_half_the_price_or_less_are_offered(names):
    offered = names("script:dear", {"OPENAI_API_KEY": "k" * 20, "ANTHROPIC_API_KEY": "k" * 20})
    book, remote = PriceBook(), [name for name in offered if "/" in name]
    assert {name.partition("/")[0] for name in remote} == {"openai", "anthropic"}
    assert len(remote) == 4
    for name in remote:
        assert book.facts(name).native_tools
        assert book.price(name).worst(4_000, 500) <= 45_000_000 / 2


def test_in_the_place_of_a_model_that_costs_nothing_none_is_offered_that_does(names):
    assert names("embedded", {"OPENAI_API_KEY": "k" * 20}) == ()


def test_models_of_the_settings_are_offered_where_no_key_has_to_be_looked_for(names):
    given = {
        "script:cheap.jsonl": {},
        "openai/at-home": {"base_url": "http://localhost:8000/v1"},
        "openai/gpt-4o-mini": {},
        "ollama/llama3": {},
    }
    assert names("script:dear", models=given) == (
        "embedded",
        "script:cheap.jsonl",
        "openai/at-home",
        "ollama/llama3",
    )
