"""The bound based on reported usage, for any tokenizer, template and way of billing caches."""

import itertools
import json
import random
import statistics
import string
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from counted_session import PRICES, play
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ecoshell
from ecoshell.budget import Account, PriceBook
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import Call, Message, ProviderState, ToolSchema, Usage
from ecoshell.models import PromptSize, Request, request_bound, text_bound
from ecoshell.models.chat_body import chat_body, mark_for_cache
from ecoshell.models.keys import Keys
from ecoshell.models.metered import MeteredModel
from ecoshell.models.prompt_bound import json_bound
from ecoshell.models.prompt_counts import ReportedPrompts
from ecoshell.models.remote import RemoteModel
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.remote_replies import is_anthropic

CORPUS = [
    (Path(ecoshell.__file__).parent / name).read_text(encoding="utf-8")
    for name in ("messages.py", "errors.py", "models/tokens.py", "budget/gate.py")
]
UNUSUAL = (
    "\ufdfaﷲ½™…—€äßÇéñ中文字漢ひらがなカ한국어हिन्दीالعربيةעברית🙂👩‍👩‍👧‍👦\u200b\u202e\x00\x7f𝔘𝒳ﬁ㎏①"
)
TEXTS = 12_000
DRAWS_PER_TOKENIZER = 300

Tokenizer = Callable[[str], int]


class BytePairs:
    """Byte-level BPE with random merges, with or without splitting into words first."""

    def __init__(self, chance: random.Random, *, merges: int, words: bool) -> None:
        text = chance.choice(CORPUS)[:3000].encode()
        vocabulary = [bytes([byte]) for byte in range(256)]
        self._ranks: dict[tuple[bytes, bytes], int] = {}
        for _ in range(merges):
            at = chance.randrange(len(text) - 2)
            pair = (text[at : at + 1], text[at + 1 : at + 2])
            if chance.random() < 0.7:
                pair = (chance.choice(vocabulary), chance.choice(vocabulary))
            vocabulary.append(pair[0] + pair[1])
            self._ranks.setdefault(pair, len(self._ranks))
        self._words = words

    def __call__(self, text: str) -> int:
        words = text.replace(" ", "\x00 ").split("\x00") if self._words else [text]
        return sum(self._count(word.encode("utf-8", "replace")) for word in words)

    def _count(self, data: bytes) -> int:
        pieces = [data[at : at + 1] for at in range(len(data))]
        while len(pieces) > 1:
            pairs = [*itertools.pairwise(pieces)]
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged: list[bytes] = []
            at = 0
            while at < len(pieces):
                joined = pieces[at : at + 2] == [*best]
                merged.append(b"".join(best) if joined else pieces[at])
                at += 2 if joined else 1
            pieces = merged
        return len(pieces)


class SentencePieces:
    """Longest match over random pieces after NFKC, with byte fallback, like SentencePiece."""

    def __init__(self, chance: random.Random, *, pieces: int) -> None:
        text = chance.choice(CORPUS).replace(" ", "▁")
        self._pieces = {"▁", *string.ascii_lowercase}
        for _ in range(pieces):
            at = chance.randrange(len(text) - 8)
            self._pieces.add(text[at : at + chance.randint(2, 8)])

    def __call__(self, text: str) -> int:
        text = unicodedata.normalize("NFKC", text).replace(" ", "▁")
        at = count = 0
        while at < len(text):
            length = next((n for n in range(8, 0, -1) if text[at : at + n] in self._pieces), 0)
            count += 1 if length else len(text[at].encode("utf-8", "replace"))
            at += length or 1
        return count


def tokenizers(chance: random.Random) -> Iterator[Tokenizer]:
    while True:
        yield BytePairs(chance, merges=chance.randint(0, 400), words=chance.random() < 0.5)
        yield SentencePieces(chance, pieces=chance.randint(0, 600))


def text_of(chance: random.Random, max_length: int = 60) -> str:
    kind = chance.random()
    length = chance.randint(0, max_length)
    if kind < 0.5:
        corpus = chance.choice(CORPUS)
        at = chance.randrange(len(corpus))
        return corpus[at : at + length]
    if kind < 0.7:
        return "".join(chance.choice(UNUSUAL + string.printable) for _ in range(length))
    if kind < 0.9:
        return "".join(
            chr(chance.choice((chance.randrange(0x300), chance.randrange(0x110000))))
            for _ in range(length)
        )
    return chance.choice(string.printable) * length


def test_no_tokenizer_exceeds_the_bound_of_a_text() -> None:
    chance = random.Random(37)
    source = tokenizers(chance)
    for _ in range(TEXTS // DRAWS_PER_TOKENIZER):
        tokenizer = next(source)
        for _ in range(DRAWS_PER_TOKENIZER):
            text = text_of(chance)
            assert tokenizer(text) <= text_bound(text)


TOOLS = tuple(
    ToolSchema(
        name,
        f"{name} of the workspace.",
        {"type": "object", "properties": {"path": {"type": "string"}}},
    )
    for name in ("read_file", "write_file", "edit_file", "search_files")
)


def exchange_of(chance: random.Random, number: int) -> tuple[Message, ...]:
    """A reply with one or two calls and possibly reasoning, and the results."""
    calls = tuple(
        Call("read_file", {"path": text_of(chance, 20)}, id=f"call{number}{part}")
        for part in range(chance.randint(1, 2))
    )
    state = None
    if chance.random() < 0.5:
        state = ProviderState(
            "f", {"thinking_blocks": [{"thinking": text_of(chance), "signature": "c2ln" * 9}]}
        )
    reply = Message("assistant", text_of(chance), calls, state=state)
    return (reply, *(Message("tool", text_of(chance, 200), (call,)) for call in calls))


def changed(chance: random.Random, request: Request) -> Request:
    """The request of a later step: longer, trimmed, compacted, or with other tools or another task."""
    messages = request.messages
    kind = chance.choice(
        ["grow", "grow", "grow", "task", "trim", "compact", "fewer tools", "more tools", "no call"]
    )
    if kind == "trim":
        at = chance.randrange(len(messages))
        messages = (*messages[:at], replace(messages[at], text="[trimmed]"), *messages[at + 1 :])
    elif kind == "compact":
        messages = (messages[0], Message("user", text_of(chance, 300)))
    request = replace(request, messages=(*messages, *exchange_of(chance, len(messages))))
    if kind == "task":
        task = text_of(chance, 80)
        request = replace(request, messages=(*request.messages, Message("user", task)), task=task)
    elif kind.endswith("tools"):
        request = replace(request, tools=TOOLS[: chance.randint(1, 4)])
    elif kind == "no call":
        request = replace(request, want="text")
    return request


def counted(request: Request, tokenizer: Tokenizer, *, plain: bool, hidden: int) -> int:
    """Tokens counted by a provider, with special tokens around each message or in one plain text."""
    tool_texts = [str(tool.as_function()) for tool in request.tools]
    texts = [*tool_texts]
    for message in request.messages:
        calls = (
            f"{call.name} {dict(call.arguments)}"
            for call in message.calls
            if message.speaker == "assistant"
        )
        texts.append("\n".join((message.text, *calls)))
    reasoning = hidden * sum(message.state is not None for message in request.messages)
    choice = (
        250 if request.want == "text" else 0
    )  # a tool choice may put another text before the array
    if plain:
        return 300 + choice + reasoning + tokenizer("\n\nHuman: ".join(texts))
    return 300 + choice + reasoning + sum(5 + tokenizer(text) for text in texts)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), plain=st.booleans())
@example(seed=93733552, plain=True)
def test_no_provider_exceeds_the_bound_of_a_conversation(seed: int, plain: bool) -> None:
    chance = random.Random(seed)
    source = tokenizers(chance)
    tokenizer = next(source) if chance.random() < 0.5 else (next(source), next(source))[1]
    reported, hidden = ReportedPrompts("m", native_tools=True), chance.choice([0, 400])
    request = Request(
        (Message("system", text_of(chance, 300)), Message("user", text_of(chance, 100))), TOOLS[:2]
    )

    def size_of(part: Request) -> PromptSize:
        bound = request_bound(part, native_tools=True)
        return PromptSize(bound, bound, exact=False)

    for _ in range(6):
        count = counted(request, tokenizer, plain=plain, hidden=hidden)
        bound = reported.bound(request, size_of)
        assert bound is None or count <= bound
        reported.record(request, Usage(count, 20 + hidden), size_of(request))
        request = changed(chance, request)


def size_of(request: Request) -> PromptSize:
    bound = request_bound(request, native_tools=True)
    return PromptSize(bound, bound, exact=False)


BASE = Request((Message("system", "x" * 8000), Message("user", "?")), TOOLS[:1])


def bound_after(usage: Usage, later: Request, base: Request = BASE) -> int | None:
    reported = ReportedPrompts("m", native_tools=True)
    reported.record(base, usage, size_of(base))
    return reported.bound(later, size_of)


def test_only_messages_after_a_counted_prompt_count_as_bytes() -> None:
    later = replace(
        BASE, messages=(*BASE.messages, Message("assistant", "y" * 500), Message("user", "z" * 100))
    )
    bound = bound_after(Usage(2000, 10), later)
    assert bound is not None
    assert 2000 + 600 < bound < 2000 + 600 + 600


def estimate_of(request: Request) -> PromptSize:
    """A size whose count is a quarter of its bound, less than the provider's in these tests."""
    bound = request_bound(request, native_tools=True)
    return PromptSize(bound // 4, bound, exact=False)


def count_after(reports: dict[int, Request], later: Request) -> int:
    """The count of a request after prompts for which a provider reported these tokens."""
    reported = ReportedPrompts("m", native_tools=True)
    for tokens, request in reports.items():
        reported.record(request, Usage(tokens, 10), estimate_of(request))
    size = reported.size(later, estimate_of)
    assert size is not None
    return size.count


def test_a_prompt_counts_as_reported_and_only_its_additions_are_estimated() -> None:
    longer = (*BASE.messages, Message("assistant", "y" * 400), Message("user", "z" * 8_000))
    long = replace(BASE, messages=longer)
    assert 5_100 <= count_after({3_000: BASE}, long) <= 5_150
    assert count_after({3_000: BASE, 6_000: long}, long) == 6_000
    summarized = replace(BASE, messages=(*BASE.messages, Message("user", "short")))
    assert 3_000 <= count_after({3_000: BASE, 6_000: long}, summarized) <= 3_050
    share = estimate_of(BASE).count / estimate_of(long).count
    assert count_after({6_000: long}, summarized) == pytest.approx(6_000 * share, rel=0.05)


def test_a_new_native_tool_counts_in_full_and_a_changed_text_of_tools_has_no_bound() -> None:
    later = replace(BASE, tools=TOOLS[:2])
    bound, same = bound_after(Usage(2000, 10), later), bound_after(Usage(2000, 10), BASE)
    assert bound is not None
    assert same is not None
    assert bound - same > json_bound(TOOLS[1].as_function())
    reported = ReportedPrompts("m", native_tools=False)
    reported.record(BASE, Usage(2000, 10), size_of(BASE))
    assert reported.bound(later, size_of) is None


def test_a_later_process_finds_a_count_by_the_digest_of_its_prompt() -> None:
    calls = (Call("read_file", {"path": "a", "lines": [1, 2]}, id="c1"),)
    state = ProviderState(
        "f", {"content": "I read.", "thinking_blocks": [{"thinking": "…", "signature": "s"}]}
    )
    reply = Message("assistant", "I read.", calls, state=state)
    counted = replace(BASE, messages=(*BASE.messages, reply, Message("tool", "é" * 90, calls)))
    first, later = ReportedPrompts("m", native_tools=True), ReportedPrompts("m", native_tools=True)
    usage = Usage(2000, 10)
    digests = {first.record(counted, usage, size_of(counted)): usage}
    later.restored = lambda: digests
    stored = json.loads(
        json.dumps([dict(call.arguments) for call in calls] + [dict(state.message)])
    )
    reread = replace(
        reply,
        calls=(replace(calls[0], arguments=stored[0]),),
        state=replace(state, message=stored[1]),
    )
    longer = (
        *BASE.messages,
        reread,
        counted.messages[-1],
        Message("assistant", "y"),
        Message("user", "z"),
    )
    again = replace(counted, messages=longer)
    assert later.bound(again, size_of) == first.bound(again, size_of) is not None
    other_tool, other_text = replace(again, tools=TOOLS[:2]), (Message("system", "x"), *longer[1:])
    assert (
        later.bound(other_tool, size_of)
        is later.bound(replace(again, messages=other_text), size_of)
        is None
    )
    stranger = ReportedPrompts("another", native_tools=True)
    stranger.restored = lambda: digests
    assert stranger.bound(again, size_of) is None
    assert first.record(counted, Usage(20, 10), size_of(counted)) == ""


def test_another_prefix_or_an_implausible_report_is_ignored() -> None:
    other = replace(BASE, messages=(Message("system", "other"), *BASE.messages[1:]))
    assert bound_after(Usage(2000, 10), other) is None
    assert bound_after(Usage(20, 10), BASE) is None  # for example, without cached tokens


def test_reasoning_that_is_sent_back_counts_as_reported() -> None:
    state = ProviderState(
        "f", {"content": "y", "thinking_blocks": [{"thinking": "short", "signature": "s"}]}
    )
    plain = replace(BASE, messages=(*BASE.messages, Message("assistant", "y")))
    signed = replace(BASE, messages=(*BASE.messages, Message("assistant", "y", state=state)))
    with_state, without = (
        bound_after(Usage(2000, 900), signed),
        bound_after(Usage(2000, 900), plain),
    )
    assert with_state is not None
    assert without is not None
    assert with_state - without >= 900


@pytest.mark.parametrize(
    ("rules", "max_tokens"),
    [("no cache", 1024), ("cache written at 1.25 x, read at 0.1 x", 16_384)],
)
async def test_after_the_first_step_a_session_reserves_at_most_twice_the_billed_prompt(
    tmp_path: Path, rules: str, max_tokens: int
) -> None:
    steps = await play(tmp_path / "ledger.sqlite", PRICES[rules], max_tokens=max_tokens)
    assert len(steps) == 30
    assert all(step.held_prompt >= step.usage.input for step in steps)
    assert statistics.median(step.held_prompt / step.usage.input for step in steps[1:]) <= 2
    if rules == "no cache":
        assert statistics.median(step.held_nano / step.spent_nano for step in steps[1:]) <= 2


ACCOUNT = Account("s", 1, "", "", "")
MODELS = {
    "claude-sonnet-4-5": {"litellm_provider": "anthropic"},
    "azure_ai/claude-sonnet-4-5": {"litellm_provider": "azure_ai"},
    "openai/gpt-5.6": {"litellm_provider": "openai"},
    "openai/gpt-4.1": {"litellm_provider": "openai", "cache_creation_input_token_cost": None},
    "gemini/gemini-3-pro": {"litellm_provider": "gemini", "cache_creation_input_token_cost": None},
}
"""Models whose caches are billed by different rules; some have no price for writing."""
RATES = {
    "input_cost_per_token": 3e-6,
    "input_cost_per_token_above_200k_tokens": 6e-6,
    "cache_read_input_token_cost": 3e-7,
    "cache_creation_input_token_cost": 3.75e-6,
    "output_cost_per_token": 15e-6,
    "output_cost_per_reasoning_token": 18e-6,
}


@pytest.fixture(scope="module")
def billed_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RemoteModel]]:
    file = tmp_path_factory.mktemp("prices") / "prices.json"
    facts = {"mode": "chat", "supports_function_calling": True, "max_output_tokens": 4000}
    entries = {
        name: {
            key: value for key, value in ({**facts, **RATES, **entry}).items() if value is not None
        }
        for name, entry in MODELS.items()
    }
    file.write_text(json.dumps(entries, indent=4))
    book = PriceBook(file=file)
    models = {
        name: RemoteModel(name, book=book, keys=Keys({}), process=RemoteProcess())
        for name in MODELS
    }
    yield models
    for model in models.values():
        model._counter.close()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with closing(Ledger(tmp_path_factory.mktemp("ledger") / "ledger.sqlite")) as ledger:
        yield Gate(ledger)


def billed_usage(
    chance: random.Random, model: RemoteModel, request: Request, count: int, max_tokens: int
) -> Usage:
    """A usage within the provider's rules: hits and misses are arbitrary, but only some prompts can be written."""
    name, price = model.traits.name, model.traits.price
    assert price is not None
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    can_write = "cache_control" in json.dumps(body) if is_anthropic(model._provider, name) else True
    cached = chance.choice([0, count, chance.randint(0, count)])
    rest = count - cached
    written = chance.choice([rest, chance.randint(0, rest)]) if can_write else 0
    output = chance.choice([max_tokens, chance.randint(1, max_tokens)])
    return Usage(count, output, cached, written, chance.randint(0, output))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_bill_exceeds_its_reservation(
    billed_models: dict[str, RemoteModel], gate: Gate, name: str, seed: int
) -> None:
    chance = random.Random(seed)
    model, tokenizer = billed_models[name], next(tokenizers(chance))
    plain, hidden = chance.random() < 0.5, chance.choice([0, 400])
    metered = MeteredModel(model, gate, lambda: ACCOUNT)
    request = Request(
        (Message("system", text_of(chance, 300)), Message("user", text_of(chance, 100))), TOOLS[:2]
    )
    for _ in range(6):
        request = replace(request, purpose=chance.choice(["step", "answer", "rank", "judge"]))
        ask = metered.reservation(request)
        assert ask.price is not None
        count = counted(request, tokenizer, plain=plain, hidden=hidden)
        usage = billed_usage(chance, model, request, count, ask.max_tokens)
        assert ask.price.cost(usage) <= ask.price.worst(ask.prompt_tokens, ask.max_tokens)
        metered._reported.record(request, usage, model.size(request))
        request = changed(chance, request)
