"""Prices and facts by model name, read from litellm's price file and the user's settings."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ecoshell.budget.price import ZERO_PRICE, Price, Rates, Tier

_FILE_NAME = "model_prices_and_context_window_backup.json"
_CHAT_MODES = frozenset({"chat", "completion", "responses"})
_SELF_HOSTED = frozenset(
    {"ollama", "ollama_chat", "lemonade", "lm_studio", "llamafile", "hosted_vllm"}
)
"""Providers that run on the user's own machines, free of charge."""
_CLOUD_SUFFIX = "-cloud"
"""Suffix of models that an Ollama server forwards to Ollama's cloud."""

_SEPARATORS = re.compile(r"[ \n\r\t,:]*")
"""Characters between the names and values of a JSON object."""

_SOURCE = "litellm's price file"

_INDENTS = (b"\n    ", b"\n")
"""Line starts of entries: the file is indented by four spaces, with a few exceptions."""
_ABOVE = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")
_EFFORTS = ("none", "minimal", "xhigh", "max")
_MAX_ENTRY_BYTES = 20_000

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Properties of a model in the price file; unknown is None."""

    name: str
    provider: str
    context: int | None
    max_output: int | None
    native_tools: bool
    vision: bool | None = None
    """Whether the model accepts images."""
    reasons: bool | None = None
    """Whether the model can reason before it answers."""
    adaptive: bool = False
    """Whether the model sets its own reasoning budget within the given effort (Claude 4.6 and later)."""
    efforts: frozenset[str] = frozenset()
    """The effort levels it accepts in addition to low, medium and high."""


ASSUMED_FREE = Price(ZERO_PRICE.rates, source="assumed free because its server runs locally")


class PriceBook:
    """Prices and facts by litellm model name; `user` prices win.

    Single entries are cut out of the file and parsed where possible, because parsing 3 MB would stall the screen. The
    file itself is read again for each new name, which takes a millisecond, and not kept in memory.
    """

    def __init__(
        self,
        user: Mapping[str, Price] | None = None,
        file: Path | None = None,
        *,
        is_local: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_local` returns whether the server of an unlisted model runs on this machine, so that it is free."""
        self.user = dict(user or {})
        self._is_local = is_local
        self._file = file
        self._matches: dict[str, tuple[str, Entry] | None] = {}
        """The results of lookups by model name."""

    def price(self, model: str) -> Price | None:
        """Return the model's price; None if it is unknown."""
        if model in self.user:
            return self.user[model]
        match = self._match(model)
        if match is None:
            prefix, _, own = model.partition("/")
            if own and prefix in _SELF_HOSTED and not own.endswith(_CLOUD_SUFFIX):
                return ZERO_PRICE
            return ASSUMED_FREE if self._is_local(model) else None
        name, entry = match
        return self.user.get(name) or _price(name, entry)

    def facts(self, model: str) -> ModelFacts | None:
        """Return the model's properties; None if the file does not list it."""
        match = self._match(model)
        return None if match is None else _facts(model, match[1])

    def names(self) -> tuple[str, ...]:
        """Return all chat models of the file and all models with a user price, sorted."""
        listed = (name for name, entry in self._entries.items() if _is_chat(entry))
        return tuple(sorted({*self.user, *listed}))

    def of_provider(self, provider: str) -> Iterator[tuple[ModelFacts, Price | None]]:
        """Yield properties and prices of a provider's models in file order; names carry the provider prefix."""
        for name, entry in self._entries_of(provider):
            if _is_chat(entry):
                full = name if name.startswith(f"{provider}/") else f"{provider}/{name}"
                price = self.user.get(full) or self.user.get(name) or _price(name, entry)
                yield _facts(full, entry), price

    def _match(self, model: str) -> tuple[str, Entry] | None:
        if model not in self._matches:
            self._matches[model] = self._lookup(model, self._read())
        return self._matches[model]

    def _lookup(self, model: str, raw: bytes) -> tuple[str, Entry] | None:
        """Return the entry by exact name, without the provider prefix, or with the only known prefix.

        `openai/responses/NAME` is NAME at another endpoint.
        """
        model = model.replace("openai/responses/", "openai/", 1)
        entry = self._entry(model, raw)
        if entry is not None:
            return (model, entry) if _is_chat(entry) else None
        prefix, slash, bare = model.partition("/")
        if slash:  # litellm divides some providers, for example `vertex_ai-llama_models`.
            entry = self._entry(bare, raw)
            owner = str((entry or {}).get("litellm_provider", ""))
            kinds = (f"{prefix}-", f"{prefix}_")
            same = owner in (prefix, f"text-completion-{prefix}") or owner.startswith(kinds)
            return (bare, entry) if entry is not None and _is_chat(entry) and same else None
        if f'/{model}"'.encode() not in raw:
            return None
        chats = ((name, entry) for name, entry in self._entries.items() if _is_chat(entry))
        matches = [item for item in chats if item[0].partition("/")[2] == model]
        return matches[0] if len(matches) == 1 else None

    def _entry(self, name: str, raw: bytes) -> Entry | None:
        if not self._is_parsed_singly(raw):
            return self._entries.get(name)
        for indent in _INDENTS:
            key = indent + f"{json.dumps(name)}: {{".encode()
            if (start := raw.find(key)) >= 0:
                return _cut(raw, start + len(key) - 1)
        return None

    def _entries_of(self, provider: str) -> Iterator[tuple[str, Entry]]:
        raw = self._read()
        if not self._is_parsed_singly(raw):
            for name, entry in self._entries.items():
                if entry.get("litellm_provider") == provider:
                    yield name, entry
            return
        field = f'\n        "litellm_provider": {json.dumps(provider)}'.encode()
        at = 0
        while (at := raw.find(field, at + 1)) >= 0:
            earliest = max(0, at - _MAX_ENTRY_BYTES)
            start = max(raw.rfind(indent + b'"', earliest, at) + len(indent) for indent in _INDENTS)
            colon = raw.index(b": {", start)
            yield json.loads(raw[start:colon]), _cut(raw, colon + len(b": "))

    def _read(self) -> bytes:
        file = self._file
        spec = importlib.util.find_spec("litellm") if file is None else None
        if spec is not None and spec.origin:
            packaged = Path(spec.origin).parent / _FILE_NAME
            file = packaged if packaged.is_file() else None
        return file.read_bytes() if file is not None else b"{}"

    def _is_parsed_singly(self, raw: bytes) -> bool:
        """Whether entries are parsed one by one: the file has the expected indentation and is not parsed yet."""
        return "_entries" not in vars(self) and raw.startswith(b'{\n    "')

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        """All entries, parsed singly: one parse of 3 MB would block all other threads."""
        text, decoder = self._read().decode(), json.JSONDecoder(parse_float=Decimal)
        entries: dict[str, Entry] = {}
        at = _skip_separators(text, text.index("{") + 1)
        while not text.startswith("}", at):
            name, at = decoder.raw_decode(text, at)
            value, at = decoder.raw_decode(text, _skip_separators(text, at))
            if isinstance(value, dict):
                entries[name] = cast("Entry", value)
            at = _skip_separators(text, at)
        return entries


def _cut(raw: bytes, start: int) -> Entry:
    """Parse the entry whose opening brace is at `start`."""
    return json.loads(raw[start : raw.index(b"\n    }", start)] + b"}", parse_float=Decimal)


def _skip_separators(text: str, at: int) -> int:
    """Return the position of the next name or value."""
    match = _SEPARATORS.match(text, at)
    return match.end() if match else at


def _facts(name: str, entry: Entry) -> ModelFacts:
    # Self-hosted providers serve any model, so a missing flag is no information.
    missing = None if entry.get("litellm_provider") in _SELF_HOSTED else False
    return ModelFacts(
        name=name,
        provider=str(entry.get("litellm_provider", "")),
        context=_count(entry, "max_input_tokens", "max_tokens"),
        max_output=_count(entry, "max_output_tokens", "max_tokens"),
        native_tools=entry.get("supports_function_calling") is True,
        vision=entry.get("supports_vision") is True or missing,
        reasons=entry.get("supports_reasoning") is True or missing,
        adaptive=entry.get("supports_adaptive_thinking") is True,
        efforts=frozenset(
            level for level in _EFFORTS if entry.get(f"supports_{level}_reasoning_effort") is True
        ),
    )


def _price(name: str, entry: Entry) -> Price | None:
    """Return the price of an entry; None if it is missing or incomplete.

    Rates for longer prompts are in `tiered_pricing` or in fields such as `…_above_128k_tokens`.
    """
    if entry.get("litellm_provider") in _SELF_HOSTED:
        return None if name.endswith(_CLOUD_SUFFIX) else ZERO_PRICE
    if "citation_cost_per_token" in entry:
        return None  # Citation tokens are billed and cannot be bounded before the call.
    base = _rates(entry, "")
    candidates = [(0, base)]
    if ranges := entry.get("tiered_pricing"):
        candidates = [(int(record["range"][0]), _rates(record, "")) for record in ranges]
    elif base is not None:
        sizes = [match[1] for field in entry if (match := _ABOVE.fullmatch(field))]
        candidates += [
            (int(size) * 1000, _rates(entry, f"_above_{size}k_tokens", base)) for size in sizes
        ]
    tiers = [Tier(above, rates) for above, rates in candidates if rates]
    tiers.sort(key=lambda tier: tier.above)
    # A hosted model with free output is one whose price the file does not know.
    if not tiers or not tiers[0].rates.output:
        return None
    fee = Decimal(str(entry.get("input_cost_per_request", 0)))
    searches = entry.get("search_context_cost_per_query")
    # charged per call
    if searches and (entry.get("litellm_provider") == "perplexity" or "-search-" in name):
        fee += max(Decimal(str(cost)) for cost in searches.values())
    return Price(tiers[0].rates, tuple(tiers[1:]), _SOURCE, fee)


def _rates(entry: Entry, suffix: str, base: Rates | None = None) -> Rates | None:
    """Return the rates with one suffix; missing rates come from `base`, else from the full input or output rate."""

    def rate(name: str) -> Decimal | None:
        value = entry.get(name + suffix)
        return None if value is None else Decimal(str(value)).scaleb(6)

    fresh, output = rate("input_cost_per_token"), rate("output_cost_per_token")
    if base is not None:
        fresh, output = fresh or base.input, output or base.output
    if fresh is None or output is None:
        return None
    cached = rate("cache_read_input_token_cost")
    write = rate("cache_creation_input_token_cost")
    reasoning = rate("output_cost_per_reasoning_token")
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


def _is_chat(entry: Entry) -> bool:
    return entry.get("mode") in _CHAT_MODES


def _count(entry: Entry, *names: str) -> int | None:
    """Return the first of these fields that is a positive number."""
    for value in map(entry.get, names):
        if isinstance(value, (int, Decimal)) and value > 0:
            return int(value)
    return None
