"""Prices and addresses of models."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from ecoshell.budget import Price, PriceBook, Rates
from ecoshell.settings.schema import Settings


def price_book(
    settings: Settings,
    run_prices: Mapping[str, Price] | None = None,
    plugin_prices: Mapping[str, Price] | None = None,
    *,
    free_local: bool = True,
) -> PriceBook:
    """Return prices by model name, in order of precedence: run, settings, plugins, packaged file.

    With `free_local`, unlisted models of a server on this machine are free.
    """
    prices: dict[str, Price] = {}
    for name, model in settings.models.named.items():
        if (price := model.price) is not None:  # Missing rates are those of input or output.
            rates = Rates(
                input=price.input,
                cached_input=price.input if price.cached_input is None else price.cached_input,
                cache_write=price.input if price.cache_write is None else price.cache_write,
                output=price.output,
                reasoning=price.output if price.reasoning is None else price.reasoning,
            )
            prices[name] = Price(rates, source="your settings")

    def is_local(name: str) -> bool:
        from ecoshell.models.servers import is_loopback

        return free_local and is_loopback(urlsplit(base_url(settings, name) or "").hostname or "")

    combined = {**(plugin_prices or {}), **prices, **(run_prices or {})}
    return PriceBook(combined, is_local=is_local)


def base_url(settings: Settings, name: str, provider: str = "") -> str | None:
    """Return a model's server from the settings or OPENAI_BASE_URL; None for the provider's own."""
    model = settings.models.named.get(name)
    if model is not None and model.base_url is not None:
        return model.base_url
    is_openai = provider == "openai" or name.startswith("openai/")
    return os.environ.get("OPENAI_BASE_URL", "").strip() or None if is_openai else None
