"""Prices by model name: the user's own first, then the file in litellm's package, read without importing litellm."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ecoshell.budget import ZERO_PRICE, Price, Rates, Tier

_FILE_NAME = "model_prices_and_context_window_backup.json"
_CHAT_MODES = frozenset({"chat", "completion", "responses"})
_SELF_HOSTED = frozenset({"ollama", "ollama_chat", "lemonade", "lm_studio", "llamafile", "hosted_vllm"})
"""Providers that run on a machine of the user's own and bill nobody."""
_HOSTED_AFTER_ALL = "-cloud"
"""How the names end that an Ollama server passes on to Ollama's own machines."""

_BETWEEN = re.compile(r"[ \n\r\t,:]*")
"""What stands between the names and values of a JSON object."""

_SOURCE = "litellm's price file"

_MARGINS = (b"\n    ", b"\n")
"""What stands before an entry's name: the file is indented by four, and a few entries, by mistake, are not."""
_ABOVE = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")
_LONGEST_ENTRY = 20_000
"""Bytes."""

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the price file says of a model besides its price; unknown is None."""

    name: str
    provider: str
    context: int | None
    max_output: int | None
    native_tools: bool


ASSUMED_FREE = Price(ZERO_PRICE.rates, source="assumed, as its server is on this machine")


class PriceBook:
    """Prices and facts by litellm's model names; `user` prices win. Nothing is read before a model is looked up.

    An entry of the file is cut out and parsed alone where that can be, since parsing 3 MB would stall a screen.
    """

    def __init__(
        self,
        user: Mapping[str, Price] | None = None,
        file: Path | None = None,
        *,
        here: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`here` says of a model nobody knows whether its server is on this machine, and so taken to cost nothing."""
        self.user = dict(user or {})
        """What the person says that models cost."""
        self._here = here
        self._file = file

    def price(self, model: str) -> Price | None:
        """What the model costs; None when nobody says."""
        if model in self.user:
            return self.user[model]
        found = self._lookup(model)
        if found is None:
            prefix, _, own = model.partition("/")
            if own and prefix in _SELF_HOSTED and not own.endswith(_HOSTED_AFTER_ALL):
                return ZERO_PRICE
            return ASSUMED_FREE if self._here(model) else None
        name, entry = found
        return self.user.get(name) or _price(name, entry)

    def facts(self, model: str) -> ModelFacts | None:
        """Context size, output limit and the like; None for a model the file does not have."""
        found = self._lookup(model)
        return None if found is None else _facts(model, found[1])

    def names(self) -> tuple[str, ...]:
        """Every model one can talk with, sorted: those of the file and those the user gave a price."""
        return tuple(sorted({*self.user, *(name for name, entry in self._everything.items() if _talks(entry))}))

    def of_provider(self, provider: str) -> Iterator[tuple[ModelFacts, Price | None]]:
        """Facts and prices of one provider's models, in the file's order, the provider written before each name."""
        for name, entry in self._entries_of(provider):
            if _talks(entry):
                full = name if name.startswith(f"{provider}/") else f"{provider}/{name}"
                yield _facts(full, entry), self.user.get(full) or self.user.get(name) or _price(name, entry)

    def _lookup(self, model: str) -> tuple[str, Entry] | None:
        """The entry by its exact name, without its provider prefix, or with the one prefix there is."""
        entry = self._entry(model)
        if entry is not None:
            return (model, entry) if _talks(entry) else None
        prefix, slash, bare = model.partition("/")
        if slash:  # litellm splits some providers into kinds, such as `vertex_ai-llama_models`
            entry = self._entry(bare)
            owner = str((entry or {}).get("litellm_provider", ""))
            kinds = (f"{prefix}-", f"{prefix}_")
            same = owner in (prefix, f"text-completion-{prefix}") or owner.startswith(kinds)
            return (bare, entry) if entry is not None and _talks(entry) and same else None
        if f'/{model}"'.encode() not in self._raw:
            return None
        owners = [one for one in self._everything.items() if one[0].partition("/")[2] == model and _talks(one[1])]
        return owners[0] if len(owners) == 1 else None

    def _entry(self, name: str) -> Entry | None:
        if not self._apart:
            return self._everything.get(name)
        for margin in _MARGINS:
            key = margin + f"{json.dumps(name)}: {{".encode()
            if (start := self._raw.find(key)) >= 0:
                return self._cut(start + len(key) - 1)
        return None

    def _entries_of(self, provider: str) -> Iterator[tuple[str, Entry]]:
        if not self._apart:
            found = self._everything.items()
            yield from ((name, entry) for name, entry in found if entry.get("litellm_provider") == provider)
            return
        mark, at = f'\n        "litellm_provider": {json.dumps(provider)}'.encode(), 0
        while (at := self._raw.find(mark, at + 1)) >= 0:
            near = max(0, at - _LONGEST_ENTRY)
            start = max(self._raw.rfind(margin + b'"', near, at) + len(margin) for margin in _MARGINS)
            colon = self._raw.index(b": {", start)
            yield json.loads(self._raw[start:colon]), self._cut(colon + len(b": "))

    @cached_property
    def _raw(self) -> bytes:
        file, found = self._file, importlib.util.find_spec("litellm")
        if file is None and found is not None and found.origin:
            packaged = Path(found.origin).parent / _FILE_NAME
            file = packaged if packaged.is_file() else None
        return file.read_bytes() if file is not None else b"{}"

    @property
    def _apart(self) -> bool:
        """Whether entries are parsed one by one: the file is indented as it should be, and not parsed yet."""
        return "_everything" not in vars(self) and self._raw.startswith(b'{\n    "')

    def _cut(self, start: int) -> Entry:
        """The entry whose opening brace is there."""
        return json.loads(self._raw[start : self._raw.index(b"\n    }", start)] + b"}", parse_float=Decimal)

    @cached_property
    def _everything(self) -> dict[str, Entry]:
        """All entries, each parsed alone: one parse of 3 MB would keep all other threads waiting."""
        text, decoder = self._raw.decode(), json.JSONDecoder(parse_float=Decimal)
        found: dict[str, Entry] = {}
        at = _behind(text, text.index("{") + 1)
        while not text.startswith("}", at):
            name, at = decoder.raw_decode(text, at)
            value, at = decoder.raw_decode(text, _behind(text, at))
            if isinstance(value, dict):
                found[name] = cast("Entry", value)
            at = _behind(text, at)
        return found


def _behind(text: str, at: int) -> int:
    """Where the next value begins, behind white space and what separates."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _facts(name: str, entry: Entry) -> ModelFacts:
    return ModelFacts(
        name=name,
        provider=str(entry.get("litellm_provider", "")),
        context=_count(entry, "max_input_tokens", "max_tokens"),
        max_output=_count(entry, "max_output_tokens", "max_tokens"),
        native_tools=entry.get("supports_function_calling") is True,
    )


def _price(name: str, entry: Entry) -> Price | None:
    """The price an entry of the file gives; None where it names none, or leaves a part of the bill out.

    Rates of longer prompts are in `tiered_pricing`, or in fields such as `…_above_128k_tokens`.
    """
    if entry.get("litellm_provider") in _SELF_HOSTED:
        return None if name.endswith(_HOSTED_AFTER_ALL) else ZERO_PRICE
    if "citation_cost_per_token" in entry:
        return None  # bills tokens that nobody can count before
    base = _rates(entry, "")
    found = [(0, base)]
    if ranges := entry.get("tiered_pricing"):
        found = [(int(record["range"][0]), _rates(record, "")) for record in ranges]
    elif base is not None:
        sizes = [match[1] for field in entry if (match := _ABOVE.fullmatch(field))]
        found += [(int(size) * 1000, _rates(entry, f"_above_{size}k_tokens", base)) for size in sizes]
    tiers = sorted((Tier(above, rates) for above, rates in found if rates), key=lambda tier: tier.above)
    # A hosted model whose output is free is one whose price the file does not know.
    if not tiers or not tiers[0].rates.output:
        return None
    fee = Decimal(str(entry.get("input_cost_per_request", 0)))
    searches = entry.get("search_context_cost_per_query")
    if searches and (entry.get("litellm_provider") == "perplexity" or "-search-" in name):  # with every call
        fee += max(Decimal(str(cost)) for cost in searches.values())
    return Price(tiers[0].rates, tuple(tiers[1:]), _SOURCE, fee)


def _rates(entry: Entry, suffix: str, base: Rates | None = None) -> Rates | None:
    """The rates under one suffix; what a tier leaves out stays as in `base`, what is nowhere is charged in full."""

    def rate(name: str) -> Decimal | None:
        value = entry.get(name + suffix)
        return None if value is None else Decimal(str(value)).scaleb(6)

    fresh, output = rate("input_cost_per_token"), rate("output_cost_per_token")
    if base is not None:
        fresh, output = fresh or base.input, output or base.output
    if fresh is None or output is None:
        return None
    cached, write, reasoning = (
        rate("cache_read_input_token_cost"),
        rate("cache_creation_input_token_cost"),
        rate("output_cost_per_reasoning_token"),
    )
    if base is not None:
        cached = base.cached_input if cached is None and base.cached_input != base.input else cached
        write = max(base.cache_write, fresh) if write is None else write
        reasoning = max(base.reasoning, output) if reasoning is None else reasoning
    return Rates(
        fresh,
        fresh if cached is None else cached,
        fresh if write is None else write,
        output,
        output if reasoning is None else reasoning,
    )


def _talks(entry: Entry) -> bool:
    return entry.get("mode") in _CHAT_MODES


def _count(entry: Entry, *names: str) -> int | None:
    """The first of these fields that is a count."""
    values = (entry.get(name) for name in names)
    return next((int(value) for value in values if isinstance(value, (int, Decimal)) and value > 0), None)
