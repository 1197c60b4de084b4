"""`ecoshell bench umi --tokens`: what the trio takes beside one model, on recorded turns and without a model.

The shell's own modes make their own requests, and every call goes through the gate like any other; the replies are the
reference's. A prompt is the tool array, then the messages, as providers put them. What it has in common with an earlier
prompt of the turn, from the first token on, is found cached, as providers' automatic prefix caches and llama.cpp have
it.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

from ecoshell.agent.dependencies import SessionBudget
from ecoshell.assembly import load_settings, price_book
from ecoshell.budget import NANO, ZERO_PRICE, Price
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.events import BudgetSettled, Event
from ecoshell.messages import FINISH, Call, Message, Usage
from ecoshell.models import PromptSize, Reply, Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import as_plain_messages, call_text
from ecoshell.modes.base import CALLER, PLANNER, SUMMARIZER
from ecoshell.modes.single import Single
from ecoshell.modes.umi import ENDINGS, Umi
from ecoshell.paths import user_paths
from ecoshell_bench.ecoact import PER_MESSAGE
from ecoshell_bench.printing import counting, progress, show_record
from ecoshell_bench.umi.asking import MODES, view_of
from ecoshell_bench.umi.metrics import TAILS, resamples
from ecoshell_train.trajectories import Decision, Trajectory, read_trajectories

PRICED_AS = "openai/gpt-5-mini"
"""Whose price and tokenizer count unless `--model` says otherwise."""
Count = Callable[[str], int]
"""Counts the tokens of a text."""
Form = Literal["native", "text"]
"""How tools are sent: as an array and calls of the provider's own kind, or as text."""
FORMS: tuple[Form, ...] = get_args(Form)
Turn = tuple[Usage, ...]
"""What one turn took in one mode, call by call."""
Measure = Callable[[Turn], float]
_SAID: dict[Decision, str] = dict(zip(("call", "finish", "give_up"), ENDINGS, strict=True))
_ENDLESS = 1 << 20
"""Tokens; no reply of the reference is cut."""
_ABOUT = """\
native: tools as an array, calls of the provider's own kind; text: both as text. Not cached (fresh): in and out,
but for what an earlier prompt of the turn began with. Prices are dollars per million tokens."""


def run_tokens(args: argparse.Namespace) -> None:
    """Count, and print; raises UsageError and SettingsError."""
    model = args.model or PRICED_AS
    price = price_book(load_settings(user_paths())).price(model)
    if price is None:
        raise UsageError(f"The price of {model} is not known.", fix=f"Name another with --model, such as {PRICED_AS}.")
    trajectories = read_trajectories(args.data, args.split)[: args.limit]
    with counting(model) as (count, tokenizer), progress(len(FORMS) * len(trajectories)) as advance:
        measured = {
            form: spending(asyncio.run(replay(trajectories, count, form, advance)), measures(price)) for form in FORMS
        }
    rates = {rate: float(getattr(price.rates, rate)) for rate in ("input", "cached_input", "output")}
    record = {"n": len(trajectories), **measured, "tokenizer": tokenizer, "prices": {"model": model, **rates}}
    show_record(record, as_json=args.json, notes=_ABOUT)


class RecordedModel:
    """Says, in every role, what one trajectory says, and counts what it was sent; its cache begins empty."""

    def __init__(self, trajectory: Trajectory, count: Count, form: Form) -> None:
        self._trajectory = trajectory
        self._count = count
        self._sent: list[tuple[str, ...]] = []
        self.number = 0
        """The step it is asked for, counted from 0."""
        self.traits = Traits("recorded", ZERO_PRICE, None, None, native_tools=form == "native", local=True)

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        return self._count(text)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt."""
        tokens = self._tokens(self._prompt(request))
        return PromptSize(tokens, tokens, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Reply]:
        """The reference's part in this role; calls are written as chat templates print them."""
        prompt = self._prompt(request)
        cached = max((self._shared(prompt, before) for before in self._sent), default=0)
        self._sent.append(prompt)
        text, call = self._said(request.role)
        written = self._count(text) if call is None or self.traits.native_tools else self._count(call_text(call, text))
        if call is not None and self.traits.native_tools:
            written += self._count(call_text(call))
        usage = Usage(input=self._tokens(prompt), cached=cached, output=written)
        yield Reply(text, () if call is None else (call,), usage)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _said(self, role: str) -> tuple[str, Call | None]:
        """What the reference says in a role, or as one model that plays them all."""
        step, final = self._trajectory.steps[self.number], self._trajectory.final
        if role == PLANNER:
            return f"{step.thought} {_SAID[step.decision]}".strip(), None
        if role == SUMMARIZER:
            return final, None
        if step.decision == "call":
            return "" if role == CALLER else step.thought, Call(step.tool, step.arguments)
        answer = {"answer": final} if step.decision == "finish" else {"answer": step.thought or final, "give_up": True}
        return "" if step.decision == "give_up" else step.thought, Call(FINISH, answer)

    def _prompt(self, request: Request) -> tuple[str, ...]:
        """The prompt in pieces: documents and messages."""

        def piece(message: Message) -> str:
            calls = message.calls if message.speaker == "assistant" else ()
            return f"{message.speaker}\n{message.text}{''.join(map(call_text, calls))}"

        if self.traits.native_tools:
            return (*(tool.entry for tool in request.tools), *map(piece, request.messages))
        return tuple(map(piece, as_plain_messages(request)))

    def _tokens(self, pieces: Iterable[str]) -> int:
        return sum(self._count(piece) + PER_MESSAGE for piece in pieces)

    def _shared(self, one: tuple[str, ...], other: tuple[str, ...]) -> int:
        """Tokens that two prompts have in common from the first one on."""
        alike = _alike(one, other)
        tokens = self._tokens(one[:alike])
        if alike < min(len(one), len(other)):
            piece = one[alike]
            tokens += self._count(piece[: _alike(piece, other[alike])])
        return tokens


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many pieces, or letters, two sequences begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


async def replay(
    trajectories: Iterable[Trajectory], count: Count, form: Form, told: Callable[[], None]
) -> list[dict[str, Turn]]:
    """Every trajectory as a turn in each mode; `told` is called after each."""
    turns: list[dict[str, Turn]] = []
    with TemporaryDirectory() as folder, closing(Ledger(Path(folder) / "ledger.sqlite")) as ledger:
        for number, trajectory in enumerate(trajectories, start=1):
            budget = SessionBudget(Gate(ledger))
            budget.enter("bench", number)
            models = {mode: RecordedModel(trajectory, count, form) for mode in MODES}
            turns.append({mode: await _turn(trajectory, mode, model, budget) for mode, model in models.items()})
            told()
    return turns


async def _turn(trajectory: Trajectory, mode: str, model: RecordedModel, session_budget: SessionBudget) -> Turn:
    calls: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, BudgetSettled):
            calls.append(event.usage)

    metered = MeteredModel(model, session_budget.gate, session_budget.account)
    if mode == "single":
        playing = Single(metered, max_tokens=_ENDLESS, answer_tokens=_ENDLESS)
    else:
        playing = Umi(metered, metered, metered, max_tokens=_ENDLESS, answer_tokens=_ENDLESS)
    for number in range(len(trajectory.steps)):
        model.number = number
        await playing.think(view_of(trajectory, number), emit)
    return tuple(calls)


# What that comes to


def measures(price: Price) -> dict[str, Measure]:
    """What is measured of a turn: calls, tokens, and dollars at this price.

    `raw` is all that is read and written, `fresh` is that without what is found cached.
    """
    return {
        "calls": len,
        "input": lambda turn: sum(usage.input for usage in turn),
        "cached": lambda turn: sum(usage.cached for usage in turn),
        "output": lambda turn: sum(usage.output for usage in turn),
        "raw": lambda turn: sum(usage.total for usage in turn),
        "fresh": lambda turn: sum(usage.total - usage.cached for usage in turn),
        "price": lambda turn: sum(map(price.cost, turn)) / NANO,
    }


def spending(turns: Sequence[Mapping[str, Turn]], by: Mapping[str, Measure]) -> dict[str, dict[str, Any]]:
    """For each measure of these turns means and medians by mode, and the mean of umi over that of single.

    The ratio has a percentile bootstrap interval of 95 %, for which both modes of a turn are drawn together; both are
    None where single takes nothing. Raises ValueError when there is no turn.
    """
    import numpy as np

    found: dict[str, dict[str, Any]] = {}
    for name, measure in by.items():
        values = {mode: [float(measure(turn[mode])) for turn in turns] for mode in MODES}
        mean = {mode: fmean(each) for mode, each in values.items()}
        ratio = interval = None
        if mean["single"]:
            draws = resamples(len(turns))
            below = draws @ np.array(values["single"])
            some = below > 0
            ends = np.percentile((draws @ np.array(values["umi"]))[some] / below[some], TAILS)
            ratio, interval = round(mean["umi"] / mean["single"], 4), [round(float(end), 4) for end in ends]
        found[name] = {
            **{mode: {"mean": round(mean[mode], 8), "median": round(median(values[mode]), 8)} for mode in MODES},
            "ratio": ratio,
            "interval": interval,
        }
    return found
