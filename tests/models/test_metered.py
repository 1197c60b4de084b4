import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from waits import Waits

from ecoshell.budget import NANO, Account, Amount, Ask, CapState, Hold, Price, Rates
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import (
    ContextExceeded,
    LimitReached,
    ModelBroken,
    ModelDisabled,
    ModelMissing,
    ModelUnavailable,
    ModelUnreachable,
)
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    CallArriving,
    Event,
    ModelReplied,
    Notice,
    Reasoned,
    TextArrived,
)
from ecoshell.messages import Call, Message, Usage
from ecoshell.models import ArrivingCall, Delta, PromptSize, Purpose, Reply, Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy

# A token costs a million nano-dollars, and a prompt has at most 100 tokens.
PRICE = Price(Rates(*[Decimal(1000)] * 5))
MILLION = 1_000_000
BOUND = 100
ACCOUNT = Account(session="s", turn=1, role="", model="", purpose="")

Attempt = Callable[[Request], AsyncIterator[Delta | Reply]]


class ScriptedModel:
    """A model with one scripted stream per attempt."""

    def __init__(
        self, *attempts: Attempt, local: bool = False, max_output: int | None = None
    ) -> None:
        self._attempts = list(attempts)
        self.asked: list[Request] = []
        self.closed = False
        self._traits = Traits("odd", PRICE, 8000, max_output, native_tools=True, local=local)

    @property
    def traits(self) -> Traits:
        return self._traits

    def size(self, request: Request) -> PromptSize:
        return PromptSize(80, BOUND, exact=False)

    def count(self, text: str) -> int:
        return len(text)

    def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        self.asked.append(request)
        return self._attempts.pop(0)(request)

    async def aclose(self) -> None:
        self.closed = True


def streams(*pieces: Delta | Reply | BaseException) -> Attempt:
    """An attempt that yields these pieces and raises the errors among them."""

    async def stream(_: Request) -> AsyncIterator[Delta | Reply]:
        for piece in pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    return stream


FINE = streams(Delta("one "), Delta("two"), Reply("one two", usage=Usage(input=80, output=2)))
BUSY = streams(ModelUnavailable("429: too many requests", billed=False))
REQUEST = Request((Message("user", "?"),), max_tokens=50)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.sqlite", busy_seconds=0.2)
    ledger.set_cap("s", "session", Amount(NANO, "usd"))
    yield ledger
    ledger.close()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def metered(ledger: Ledger) -> Callable[[ScriptedModel], MeteredModel]:
    return lambda model: MeteredModel(
        model, Gate(ledger), lambda: ACCOUNT, retry=Waits().policy(120)
    )


Metered = Callable[[ScriptedModel], MeteredModel]


def cap(ledger: Ledger) -> CapState:
    return ledger.caps("s", 1)[0]


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def test_nothing_is_reserved_while_a_model_loads(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    class Loading(ScriptedModel):
        gate = asyncio.Event()

        async def load(self) -> None:
            await self.gate.wait()

    model = metered(Loading(FINE, FINE))
    asking = asyncio.create_task(model.ask(REQUEST, events.append))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert (events, ledger.rows("session"), cap(ledger).left) == ([], (), NANO)
    Loading.gate.set()
    assert (await model.ask(REQUEST, events.append)).text == "one two"


async def test_a_call_is_reserved_streamed_and_settled_in_order(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    reply = await metered(ScriptedModel(FINE)).ask(REQUEST, events.append, role="planner")
    assert reply.text == "one two"
    assert kinds(events) == [
        "budget_held",
        "text_arrived",
        "text_arrived",
        "model_replied",
        "budget_settled",
    ]
    hold, settled = events[0], events[-1]
    assert isinstance(hold, BudgetHeld)
    assert (hold.held_nano, hold.held_tokens, hold.max_tokens, hold.clamped) == (
        150 * MILLION,
        150,
        50,
        False,
    )
    assert isinstance(settled, BudgetSettled)
    assert (settled.role, settled.spent_nano, settled.reported) == ("planner", 82 * MILLION, True)
    assert (cap(ledger).spent, cap(ledger).held) == (82 * MILLION, 0)
    assert ledger.rows("role")[0].key == "planner"


@pytest.mark.parametrize(
    ("purpose", "channels"),
    [("step", {"thought"}), ("repair", {"thought"}), ("answer", {"answer"}), ("compact", set())],
)
async def test_text_is_streamed_as_thought_or_answer_and_not_for_compaction(
    purpose: Purpose, channels: set[str], metered: Metered, events: list[Event]
) -> None:
    await metered(ScriptedModel(FINE)).ask(
        Request(REQUEST.messages, max_tokens=50, purpose=purpose), events.append
    )
    assert {event.channel for event in events if isinstance(event, TextArrived)} == channels


@pytest.mark.parametrize("fault", ["", "The call was cut."])
async def test_a_reply_says_whether_its_call_is_unusable(
    fault: str, metered: Metered, events: list[Event]
) -> None:
    reply = Reply("I write it.", usage=Usage(80, 50), fault=fault, cut=True, finish="length")
    await metered(ScriptedModel(streams(reply))).ask(REQUEST, events.append)
    (replied,) = [event for event in events if isinstance(event, ModelReplied)]
    assert (replied.finish, replied.has_unusable_call) == ("length", bool(fault))


async def test_reasoning_is_streamed_reported_and_paid_for(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    thinking = (Delta("Let me ", reasoning=True), Delta("see.", reasoning=True))
    reply = Reply("one", usage=Usage(80, 20, reasoning=15), reasoning="Let me see.")
    answer = await metered(ScriptedModel(streams(*thinking, Delta("one"), reply))).ask(
        REQUEST, events.append
    )
    assert answer.text == "one"
    texts: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextArrived):
            texts[event.channel] = texts.get(event.channel, "") + event.text
    assert texts == {"reasoning": "Let me see.", "thought": "one"}
    assert [event for event in events if isinstance(event, Reasoned)] == [
        Reasoned("Let me see.", "single", 15)
    ]
    assert cap(ledger).spent == 100 * MILLION


async def test_uncounted_reasoning_has_no_token_count_and_that_of_compaction_is_not_reported(
    metered: Metered, events: list[Event]
) -> None:
    reply = Reply("one", usage=Usage(80, 20), reasoning="Hm.")
    await metered(ScriptedModel(streams(reply))).ask(REQUEST, events.append)
    await metered(ScriptedModel(streams(reply))).ask(
        Request(REQUEST.messages, max_tokens=50, purpose="compact"), events.append
    )
    assert [event for event in events if isinstance(event, Reasoned)] == [
        Reasoned("Hm.", "single", None)
    ]


@pytest.mark.parametrize(("purpose", "count"), [("step", 1), ("compact", 0)])
async def test_a_growing_call_is_reported_except_for_compaction(
    purpose: Purpose, count: int, metered: Metered, events: list[Event]
) -> None:
    growing = Delta("", unseen=9, call=ArrivingCall("write_file", "notes.txt", 12))
    reply = Reply("one", usage=Usage(80, 20))
    await metered(ScriptedModel(streams(growing, reply))).ask(
        Request(REQUEST.messages, max_tokens=50, purpose=purpose), events.append
    )
    arriving = [event for event in events if isinstance(event, CallArriving)]
    assert arriving == [CallArriving("write_file", "notes.txt", 12, "single")] * count


async def test_the_answer_in_a_call_of_finish_is_streamed_as_the_answer(
    metered: Metered, events: list[Event]
) -> None:
    reply = Reply("Done.", (Call("finish", {"answer": "Milk."}),), Usage(80, 2))
    await metered(ScriptedModel(streams(Delta("Done."), Delta("Milk.", answer=True), reply))).ask(
        REQUEST, events.append
    )
    channels = [(event.text, event.channel) for event in events if isinstance(event, TextArrived)]
    assert channels == [("Done.", "thought"), ("Milk.", "answer")]


async def test_the_output_limit_never_exceeds_the_reservation(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    ledger.set_cap("s", "session", Amount(130 * MILLION, "usd"))
    model = ScriptedModel(FINE)
    await metered(model).ask(REQUEST, events.append)
    assert model.asked[0].max_tokens == 30
    assert isinstance(events[0], BudgetHeld)
    assert events[0].clamped


async def test_the_reservation_never_exceeds_the_models_output_limit(
    metered: Metered, events: list[Event]
) -> None:
    model = ScriptedModel(FINE, max_output=20)
    await metered(model).ask(REQUEST, events.append)
    assert model.asked[0].max_tokens == 20


async def test_a_request_over_the_cap_is_not_sent(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    ledger.set_cap("s", "session", Amount(110 * MILLION, "usd"))
    model = ScriptedModel(FINE)
    with pytest.raises(LimitReached):
        await metered(model).ask(REQUEST, events.append)
    assert model.asked == []
    assert events == []


@pytest.mark.parametrize(
    "usage",
    [
        None,
        Usage(input=-1, output=2),
        Usage(input=80, output=10**12),
        Usage(input="80", output=2),  # type: ignore[arg-type]
        Usage(input=80.5, output=2),  # type: ignore[arg-type]
        Usage(input=True, output=2),
        Usage(input=80, output=2, cached=81),
        Usage(input=80, output=2, reasoning=3),
        Usage(),
        Usage(
            input=80
        ),  # some providers report input tokens before they answer and nothing afterwards
    ],
)
async def test_missing_or_implausible_usage_counts_the_full_reservation(
    usage: Usage | None, metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    reply = await metered(ScriptedModel(streams(Delta("text"), Reply("text", usage=usage)))).ask(
        REQUEST, events.append
    )
    assert reply.text == "text"
    assert reply.usage is None
    settled = events[-1]
    assert isinstance(settled, BudgetSettled)
    assert (settled.reported, settled.spent_nano) == (False, 150 * MILLION)
    assert cap(ledger).spent == 150 * MILLION


async def test_usage_below_the_estimate_is_accepted(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    await metered(ScriptedModel(streams(Reply("text", usage=Usage(1, 1))))).ask(
        REQUEST, events.append
    )
    assert cap(ledger).spent == 2 * MILLION


async def test_a_bill_above_the_reservation_is_reported_and_disables_the_model(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    model = metered(ScriptedModel(streams(Reply("text", usage=Usage(200, 100))), FINE))
    await model.ask(REQUEST, events.append)
    settled, notice = events[-2], events[-1]
    assert isinstance(settled, BudgetSettled)
    assert settled.overrun_nano == 150 * MILLION
    assert isinstance(notice, Notice)
    assert "odd billed $0.15 more" in notice.text
    with pytest.raises(ModelDisabled):
        await model.ask(REQUEST, events.append)


@pytest.mark.parametrize(
    "error",
    [ModelUnavailable("the stream broke off"), ModelBroken("garbage"), RuntimeError("a defect")],
)
async def test_a_call_that_fails_during_the_stream_counts_in_full(
    error: Exception, metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    with pytest.raises(type(error)):
        await metered(ScriptedModel(streams(Delta("one "), error))).ask(REQUEST, events.append)
    assert (cap(ledger).spent, cap(ledger).held) == (150 * MILLION, 0)
    assert kinds(events)[-1] == "budget_settled"


async def test_a_stream_without_a_final_reply_is_an_error_and_counts_in_full(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    with pytest.raises(ModelBroken, match="without an answer"):
        await metered(ScriptedModel(streams(Delta("one ")))).ask(REQUEST, events.append)
    assert cap(ledger).spent == 150 * MILLION


async def test_a_missing_model_costs_nothing(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    with pytest.raises(ModelMissing):
        await metered(ScriptedModel(streams(ModelMissing("no key")))).ask(REQUEST, events.append)
    assert (cap(ledger).spent, cap(ledger).held) == (0, 0)


@pytest.mark.parametrize(("limit", "blames_output"), [(None, False), (95, False), (120, True)])
async def test_a_rejection_blames_the_output_only_if_the_prompt_fits(
    metered: Metered, events: list[Event], limit: int | None, blames_output: bool
) -> None:
    error = ContextExceeded("Too long.", limit=limit, fix="Ask something shorter.")
    model = metered(ScriptedModel(streams(error)))
    with pytest.raises(ContextExceeded) as raised:
        await model.ask(REQUEST, events.append)
    assert ("max_output_tokens" in raised.value.fix) == blames_output
    assert model.traits.context == (limit or 130)


async def test_a_refused_call_is_retried_with_a_new_reservation(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    reply = await metered(ScriptedModel(BUSY, BUSY, FINE)).ask(REQUEST, events.append)
    assert reply.text == "one two"
    holds = [event for event in events if isinstance(event, BudgetHeld)]
    assert len({event.entry for event in holds}) == 3
    assert len([event for event in events if isinstance(event, Notice)]) == 2
    assert (cap(ledger).spent, cap(ledger).held) == (82 * MILLION, 0)
    assert ledger.rows("session")[0].calls == 1


async def test_retries_back_off_until_the_time_limit(ledger: Ledger, events: list[Event]) -> None:
    waits, model = Waits(), ScriptedModel(*[BUSY] * 20)
    with pytest.raises(ModelUnavailable, match=r"429.* Gave up after \d+ attempts in .*s\."):
        await MeteredModel(model, Gate(ledger), lambda: ACCOUNT, retry=waits.policy(60)).ask(
            REQUEST, events.append
        )
    assert all(2**n / 2 <= pause <= 2**n for n, pause in enumerate(waits.pauses[:4]))
    assert len(model.asked) == len(waits.pauses) + 1
    assert 30 < waits.now <= 60
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert len(notices) == len(waits.pauses)
    assert "429: too many requests Retrying (attempt 2): waiting" in notices[0]
    assert (cap(ledger).spent, cap(ledger).held) == (0, 0)


async def test_the_retry_delay_of_a_provider_is_respected(
    ledger: Ledger, events: list[Event]
) -> None:
    waits, limited = Waits(), streams(ModelUnavailable("429", billed=False, retry_after=20))
    model = ScriptedModel(limited, limited, FINE)
    await MeteredModel(model, Gate(ledger), lambda: ACCOUNT, retry=waits.policy(60)).ask(
        REQUEST, events.append
    )
    assert all(20 <= pause <= 23 for pause in waits.pauses)
    assert len(waits.pauses) == 2


async def test_a_retry_delay_over_the_limit_is_not_started(
    ledger: Ledger, events: list[Event]
) -> None:
    waits, model = (
        Waits(),
        ScriptedModel(streams(ModelUnavailable("429", billed=False, retry_after=600)), FINE),
    )
    with pytest.raises(
        ModelUnavailable, match=r"asks to wait 10 min 0 s \(Retry-After\), longer than "
    ):
        await MeteredModel(model, Gate(ledger), lambda: ACCOUNT, retry=waits.policy(60)).ask(
            REQUEST, events.append
        )
    assert (waits.pauses, len(model.asked)) == ([], 1)


async def test_a_possibly_billed_failure_is_retried_with_a_new_reservation(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    await metered(ScriptedModel(streams(ModelUnavailable("HTTP 503")), FINE)).ask(
        REQUEST, events.append
    )
    assert (cap(ledger).spent, cap(ledger).held) == ((150 + 82) * MILLION, 0)


async def test_a_retry_over_the_cap_ends_with_the_providers_error(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    ledger.set_cap("s", "session", Amount(200 * MILLION, "usd"))
    model = ScriptedModel(streams(ModelUnavailable("HTTP 503")), FINE)
    with pytest.raises(
        ModelUnavailable, match="HTTP 503 No further attempt: The next call may need"
    ):
        await metered(model).ask(REQUEST, events.append)
    assert (cap(ledger).spent, cap(ledger).held, len(model.asked)) == (150 * MILLION, 0, 1)


@pytest.mark.parametrize("piece", [Delta("one "), Delta("Hm", reasoning=True), Delta("", unseen=7)])
async def test_a_call_is_never_retried_after_a_part_of_the_reply_arrived(
    piece: Delta, metered: Metered, events: list[Event]
) -> None:
    model = ScriptedModel(streams(piece, ModelUnavailable("the stream broke off")), FINE)
    with pytest.raises(ModelUnavailable) as caught:
        await metered(model).ask(REQUEST, events.append)
    assert (len(model.asked), caught.value.shown, caught.value.model) == (1, True, "odd")


@pytest.mark.parametrize(
    "failure",
    [
        ModelUnreachable("No server.", billed=False),
        ModelUnavailable("402", billed=False, transient=False),
    ],
)
async def test_a_permanent_failure_is_not_retried(
    failure: ModelUnavailable, metered: Metered, events: list[Event]
) -> None:
    model = ScriptedModel(streams(failure), FINE)
    with pytest.raises(ModelUnavailable):
        await metered(model).ask(REQUEST, events.append)
    assert len(model.asked) == 1


async def test_a_retry_keeps_its_reservation_against_rivals(ledger: Ledger) -> None:
    ledger.set_cap("s", "session", Amount(150 * MILLION, "usd"))
    gate = Gate(ledger)
    rivals: list[asyncio.Task[Hold]] = []

    def reserve_the_remaining_budget_on_a_notice(event: Event) -> None:
        if isinstance(event, Notice):
            rivals.append(asyncio.create_task(gate.hold(lambda: Ask(PRICE, BOUND, 50, ACCOUNT))))

    model = MeteredModel(
        ScriptedModel(BUSY, FINE), gate, lambda: ACCOUNT, retry=RetryPolicy(first_pause=0.1)
    )
    reply = await model.ask(REQUEST, reserve_the_remaining_budget_on_a_notice)
    assert reply.text == "one two"
    with pytest.raises(LimitReached):
        await rivals[0]


async def test_a_cancelled_pause_releases_the_reservation(ledger: Ledger) -> None:
    slow = RetryPolicy(7200, first_pause=3600, longest_pause=3600)
    model = MeteredModel(ScriptedModel(BUSY), Gate(ledger), lambda: ACCOUNT, retry=slow)
    noticed = asyncio.Event()
    call = asyncio.create_task(
        model.ask(REQUEST, lambda event: noticed.set() if event.type == "notice" else None)
    )
    await noticed.wait()
    assert cap(ledger).held > 0
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (cap(ledger).spent, cap(ledger).held) == (0, 0)


def _endless(text: str) -> Attempt:
    async def stream(_: Request) -> AsyncIterator[Delta | Reply]:
        while True:
            yield Delta(text)

    return stream


@pytest.mark.parametrize("text", ["on and on ", "", "x" * 10_000])
async def test_an_endless_stream_is_cut_counted_in_full_and_disables_the_model(
    text: str, metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    reply = await metered(ScriptedModel(_endless(text))).ask(REQUEST, events.append)
    assert reply.cut
    assert reply.text == text * (len(reply.text) // len(text) if text else 0)
    assert cap(ledger).spent == 150 * MILLION
    assert any(isinstance(event, Notice) and "cut off" in event.text for event in events)
    assert list(ledger.barred()) == ["odd"]


async def _cancel_during_stream(
    model: ScriptedModel, metered: Metered, events: list[Event], started: asyncio.Event
) -> None:
    call = asyncio.create_task(metered(model).ask(REQUEST, events.append))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def _stuck(started: asyncio.Event, *pieces: Delta) -> Attempt:
    async def stream(_: Request) -> AsyncIterator[Delta | Reply]:
        for piece in pieces:
            yield piece
        started.set()
        await asyncio.Event().wait()

    return stream


async def test_a_remote_call_stopped_during_the_stream_counts_in_full(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    started = asyncio.Event()
    await _cancel_during_stream(
        ScriptedModel(_stuck(started, Delta("one "))), metered, events, started
    )
    assert (cap(ledger).spent, cap(ledger).held) == (150 * MILLION, 0)
    settled = events[-1]
    assert isinstance(settled, BudgetSettled)
    assert (settled.spent_nano, settled.usage.total) == (150 * MILLION, 150)
    assert (settled.estimate, settled.estimate_nano) == (Usage(80, 4), 84 * MILLION)
    assert settled.why == "the call was stopped"


async def test_a_local_call_stopped_during_the_stream_counts_its_own_usage(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    started = asyncio.Event()
    attempt = _stuck(started, Delta("one ", Usage(80, 1)), Delta("two", Usage(80, 2)))
    await _cancel_during_stream(ScriptedModel(attempt, local=True), metered, events, started)
    assert cap(ledger).spent == 82 * MILLION


async def test_the_reserve_for_the_answer_also_pays_for_its_second_attempt(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    ledger.set_cap("s", "session", Amount(160 * MILLION, "usd"))
    model = metered(ScriptedModel(BUSY, FINE))
    aside = await model.set_aside(lambda: REQUEST, slack=10)
    assert (aside.prompt_tokens, cap(ledger).left) == (110, 0)
    with pytest.raises(LimitReached):
        await model.ask(REQUEST, events.append)
    reply = await model.ask(REQUEST, events.append, aside=aside)
    assert reply.text == "one two"
    assert (cap(ledger).spent, cap(ledger).held) == (82 * MILLION, 0)


async def test_an_unused_reserve_is_released(metered: Metered, ledger: Ledger) -> None:
    model = metered(ScriptedModel())
    await model.release(await model.set_aside(lambda: REQUEST))
    assert cap(ledger).held == 0


async def test_an_answer_whose_settlement_fails_is_kept_and_its_reservation_counts(
    metered: Metered, ledger: Ledger, tmp_path: Path, events: list[Event]
) -> None:
    other = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)

    async def locking(_: Request) -> AsyncIterator[Delta | Reply]:
        other.execute("BEGIN IMMEDIATE")
        yield Reply("here it is", usage=Usage(1, 1))

    reply = await metered(ScriptedModel(locking)).ask(REQUEST, events.append)
    other.execute("ROLLBACK")
    other.close()
    assert reply.text == "here it is"
    assert any(
        isinstance(event, Notice) and "could not be settled" in event.text for event in events
    )
    settled = events[-1]
    assert isinstance(settled, BudgetSettled)
    assert not settled.reported
    assert cap(ledger).held == 150 * MILLION


async def test_traits_counts_and_closing_pass_to_the_model(metered: Metered) -> None:
    scripted = ScriptedModel(streams(Reply("", calls=(Call("t"),))))
    model = metered(scripted)
    assert (model.traits.name, model.count("abc"), model.size(REQUEST).bound) == ("odd", 3, BOUND)
    await model.aclose()
    assert scripted.closed


async def test_a_call_is_booked_on_the_tool_it_concerns(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    reply = Reply("", (Call("tool_register", {"tool_name": "read_file"}),), Usage(80, 2))
    await metered(ScriptedModel(streams(reply), FINE)).ask(REQUEST, events.append)
    assert [row.key for row in ledger.rows("tool")] == ["read_file"]


async def test_an_invalid_request_costs_nothing_and_is_not_repeated(
    metered: Metered, ledger: Ledger, events: list[Event]
) -> None:
    model = ScriptedModel(streams(ModelBroken("400: no such parameter", billed=False)), FINE)
    with pytest.raises(ModelBroken):
        await metered(model).ask(REQUEST, events.append)
    assert len(model.asked) == 1
    assert (cap(ledger).spent, cap(ledger).held) == (0, 0)
