"""The price book compared with the price file of the installed litellm, which has dollars per token."""

import importlib.util
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ecoshell.budget import ZERO_PRICE, Price, PriceBook, Rates
from ecoshell.messages import Usage

ONE = Price(Rates(*[Decimal(1)] * 5), source="mine")
M = Decimal(1_000_000)


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, Any]]:
    package = importlib.util.find_spec("litellm")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "model_prices_and_context_window_backup.json"
    return json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook()


NAMES = [
    "gpt-4o",
    "gpt-4o-mini",
    "gpt-4.1",
    "o3",
    "gpt-5",
    "gpt-5-mini",
    "claude-sonnet-4-5",
    "claude-opus-4-5",
]
NAMES += [
    "claude-haiku-4-5",
    "gemini/gemini-2.5-pro",
    "gemini/gemini-2.5-flash",
    "deepseek/deepseek-chat",
]
NAMES += ["mistral/mistral-large-latest"]


@pytest.mark.parametrize("name", NAMES)
def test_rates_match_the_fields_of_real_entries(
    name: str, book: PriceBook, published: dict[str, dict[str, Any]]
) -> None:
    entry, price = published[name], book.price(name)
    assert price is not None
    assert price.rates.input == entry["input_cost_per_token"] * M
    assert price.rates.output == entry["output_cost_per_token"] * M
    cached = entry.get("cache_read_input_token_cost", entry["input_cost_per_token"])
    write = entry.get("cache_creation_input_token_cost", entry["input_cost_per_token"])
    reasoning = entry.get("output_cost_per_reasoning_token", entry["output_cost_per_token"])
    assert price.rates.cached_input == cached * M
    assert price.rates.cache_write == Decimal(write) * M
    assert price.rates.reasoning == reasoning * M


def test_costs_of_gpt_4o_match_manual_arithmetic(book: PriceBook) -> None:
    price = book.price("gpt-4o")
    assert price is not None
    assert price.cost(Usage(input=1_000_000)) == 2_500_000_000
    assert price.cost(Usage(input=1_000_000, cached=1_000_000)) == 1_250_000_000
    assert price.cost(Usage(output=1_000_000)) == 10_000_000_000


def test_claude_cache_writes_have_their_higher_rate(book: PriceBook) -> None:
    price = book.price("claude-sonnet-4-5")
    assert price is not None
    assert price.cost(Usage(input=1_000_000, cache_write=1_000_000)) == 3_750_000_000
    assert price.worst(1_000_000, 0) >= 3_750_000_000


def test_gemini_costs_more_above_200k_tokens(book: PriceBook) -> None:
    price = book.price("gemini/gemini-2.5-pro")
    assert price is not None
    assert [tier.above for tier in price.tiers] == [200_000]
    assert price.cost(Usage(input=200_000)) == 250_000_000
    assert price.cost(Usage(input=200_001)) == 500_002_500


def test_price_ranges_become_tiers(book: PriceBook) -> None:
    price = book.price("dashscope/qwen3-coder-plus")
    assert price is not None
    assert price.rates.input == 1
    assert [(tier.above, tier.rates.input) for tier in price.tiers] == [
        (32_000, Decimal("1.8")),
        (128_000, Decimal(3)),
        (256_000, Decimal(6)),
    ]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("openai/gpt-4o", "gpt-4o"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("magistral-medium-latest", "mistral/magistral-medium-latest"),
    ],
)
def test_a_name_resolves_with_and_without_its_provider(
    name: str, same: str, book: PriceBook
) -> None:
    assert book.price(same) is not None
    assert book.price(name) == book.price(same)


@pytest.mark.parametrize(
    "name", ["groq/gpt-4o", "unknown/some-model", "some-model", "sample_spec", "dall-e-3", ""]
)
def test_an_unlisted_model_has_an_unknown_price_and_is_not_free(name: str, book: PriceBook) -> None:
    assert book.price(name) is None


def test_a_hosted_model_listed_at_zero_is_unknown_and_a_local_one_is_free(
    book: PriceBook, published: dict[str, dict[str, Any]]
) -> None:
    hosted = "vertex_ai/meta/llama3-405b-instruct-maas"
    assert published[hosted]["input_cost_per_token"] == 0
    assert book.price(hosted) is None
    assert book.price("ollama/llama3") == ZERO_PRICE
    assert book.price("ollama/a-model-of-my-own") == ZERO_PRICE
    assert book.price("hosted_vllm/Qwen/Qwen3-4B") == ZERO_PRICE
    assert book.price("ollama/gpt-oss:20b-cloud") is None


def test_a_model_with_uncountable_billing_has_no_price(book: PriceBook) -> None:
    assert book.price("perplexity/sonar-deep-research") is None
    assert book.price("azure_ai/model_router") is None


def test_a_model_that_always_searches_has_a_fee_per_request(book: PriceBook) -> None:
    price = book.price("perplexity/sonar")
    assert price is not None
    assert price.request > 0


def test_the_users_price_overrides_the_file_and_works_without_it(tmp_path: Path) -> None:
    book = PriceBook({"gpt-4o": ONE, "my/model": ONE})
    assert book.price("gpt-4o") == ONE
    assert book.price("openai/gpt-4o") == ONE
    assert PriceBook({"my/model": ONE}, tmp_path / "missing.json").price("my/model") == ONE


def test_facts_include_context_output_limit_and_native_tools(book: PriceBook) -> None:
    facts = book.facts("openai/gpt-4o")
    assert facts is not None
    assert (facts.provider, facts.context, facts.max_output, facts.native_tools) == (
        "openai",
        128_000,
        16_384,
        True,
    )
    assert book.facts("unknown/some-model") is None


def test_most_names_have_a_price_and_none_is_negative(book: PriceBook) -> None:
    names = book.names()
    assert len(names) > 2000
    assert "gpt-4o" in names
    assert "sample_spec" not in names
    prices = [book.price(name) for name in names]
    assert sum(price is not None for price in prices) > 0.9 * len(names)
    assert all(
        price.cost(Usage(100_000, 1000, 10, 10, 10)) >= 0 for price in prices if price is not None
    )


def test_a_file_in_another_layout_has_the_same_prices(
    tmp_path: Path, published: dict[str, dict[str, Any]]
) -> None:
    flat = tmp_path / "flat.json"
    flat.write_text(json.dumps({"gpt-4o": published["gpt-4o"]}, default=float))
    assert PriceBook(file=flat).price("gpt-4o") == PriceBook().price("gpt-4o")


def test_a_price_lookup_does_not_import_litellm() -> None:
    code = "import sys; from ecoshell.budget import PriceBook; PriceBook().price('gpt-4o') or sys.exit(2); "
    done = subprocess.run(
        [sys.executable, "-c", code + "sys.exit('litellm' in sys.modules)"], check=False
    )
    assert done.returncode == 0


def test_a_bare_name_of_several_providers_is_ambiguous(book: PriceBook) -> None:
    owners = [name for name in book.names() if name.partition("/")[2] == "mistral-large-latest"]
    assert len(owners) > 1
    assert book.price("mistral-large-latest") is None


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_the_models_of_a_provider_are_all_its_chat_entries(
    provider: str, book: PriceBook, published: dict[str, dict[str, Any]]
) -> None:
    chat_models = [
        name
        for name, entry in published.items()
        if entry.get("litellm_provider") == provider
        and entry.get("mode") in ("chat", "completion", "responses")
    ]
    models = list(
        PriceBook().of_provider(provider)
    )  # a new book, which has not parsed the complete file
    assert [facts.name.removeprefix(f"{provider}/") for facts, _ in models] == [
        name.removeprefix(f"{provider}/") for name in chat_models
    ]
    assert all(facts.name.startswith(f"{provider}/") for facts, _ in models)
    for facts, price in models[:20]:
        assert price == book.price(facts.name)


def test_the_users_price_overrides_that_of_a_providers_model() -> None:
    prices = {
        facts.name: price for facts, price in PriceBook({"gpt-4o": ONE}).of_provider("openai")
    }
    assert prices["openai/gpt-4o"] == ONE


def test_an_entry_with_other_indentation_is_read(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    rates = '"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "mode": "chat"'
    first = f'    "a": {{\n        {rates},\n        "litellm_provider": "openai"\n    }}'
    second = f'"b": {{\n        {rates},\n        "litellm_provider": "openai"\n    }}'
    file.write_text(f"{{\n{first},\n{second}\n}}\n")
    book = PriceBook(file=file)
    assert book.price("b") is not None
    assert [facts.name for facts, _ in PriceBook(file=file).of_provider("openai")] == [
        "openai/a",
        "openai/b",
    ]
