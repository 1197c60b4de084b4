"""The name and the price of a model that a request names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from ecoshell.budget import ZERO_PRICE, Price, PriceBook, Rates, Tier
from ecoshell_gateway.protocols import RequestFacts
from ecoshell_gateway.protocols.format import Provider

_PROVIDERS = {
    "openrouter.ai": "openrouter",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.x.ai": "xai",
    "api.together.xyz": "together_ai",
    "api.fireworks.ai": "fireworks_ai",
    "api.cerebras.ai": "cerebras",
    "api.moonshot.ai": "moonshot",
    "generativelanguage.googleapis.com": "gemini",
}
"""litellm's names of providers that speak OpenAI's or Anthropic's format, by host."""
_HOUR_CACHE_FACTOR = Decimal(2)
"""Price of writing Anthropic's cache of one hour, in input prices."""
_CACHED_MODELS = 256
_UNPRICED = Price(ZERO_PRICE.rates, source="unknown; counted in tokens")
_SUBSCRIPTION = Price(ZERO_PRICE.rates, source="paid by subscription; counted in tokens")


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The most output and prompt tokens of a model; unknown is None."""

    max_output: int | None
    context: int | None


class Prices:
    """Looks up models by the names that clients use."""

    def __init__(
        self,
        book: PriceBook,
        hosts: Mapping[Provider, str],
        *,
        allow_unpriced: bool = False,
        is_subscription: bool = False,
    ) -> None:
        self._book = book
        self._prefixes = {
            provider: _PROVIDERS.get(host, provider) for provider, host in hosts.items()
        }
        self._allow_unpriced = allow_unpriced
        self._is_subscription = is_subscription
        self._listed = lru_cache(maxsize=_CACHED_MODELS)(self._read)

    def name(self, provider: Provider, model: str) -> str:
        """Return the model's name in the ledger, such as `anthropic/claude-sonnet-4-5`."""
        prefix = self._prefixes[provider]
        return model if model.startswith(f"{prefix}/") else f"{prefix}/{model}"

    def limits(self, name: str) -> ModelLimits:
        """Return the model's limits."""
        return self._listed(name)[1]

    def price(self, name: str, facts: RequestFacts) -> Price | None:
        """Return the price of a request; None if it is unknown."""
        if self._is_subscription:
            return _SUBSCRIPTION
        price = self._listed(name)[0] or self._book.user.get(facts.model)
        if price is None:
            return _UNPRICED if self._allow_unpriced else None
        if facts.has_hour_cache:
            tiers = tuple(Tier(tier.above, _hour_rates(tier.rates)) for tier in price.tiers)
            price = replace(price, rates=_hour_rates(price.rates), tiers=tiers)
        writes = facts.has_cache_marks or not name.startswith("anthropic/")
        return price if writes else replace(price, cache_writes=False)

    def _read(self, name: str) -> tuple[Price | None, ModelLimits]:
        """Search the price book, which takes milliseconds."""
        facts = self._book.facts(name)
        limits = (
            ModelLimits(None, None)
            if facts is None
            else ModelLimits(facts.max_output, facts.context)
        )
        return self._book.price(name), limits


def _hour_rates(rates: Rates) -> Rates:
    """Return the rates of a request that may write a cache of one hour."""
    return replace(rates, cache_write=max(rates.cache_write, _HOUR_CACHE_FACTOR * rates.input))
