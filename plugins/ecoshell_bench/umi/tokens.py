"""`ecoshell bench umi --tokens`: tokens and price of the mode umi compared with single, on recorded turns.

The shell's modes make their usual requests through the gate; the replies come from the reference instead of a model. A
prompt is the tool array, then the messages. The longest common prefix with an earlier prompt of the turn is cached, as
in automatic prefix caches of providers and in llama.cpp.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

from ecoshell.agent.spending import SessionBudget
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
from ecoshell.modes.base import CALLER, PLANNER, SUMMARIZER, ModeLimits
from ecoshell.modes.single import Single
from ecoshell.modes.umi import ENDINGS, Umi
from ecoshell.paths import user_paths
from ecoshell_bench.ecoact import TOKENS_PER_MESSAGE
from ecoshell_bench.printing import counting, progress, show_record
from ecoshell_bench.umi.asking import MODES, view_of
from ecoshell_bench.umi.metrics import TAILS, resamples
from ecoshell_train.trajectories import Decision, Trajectory, read_trajectories

PRICED_AS = "openai/gpt-5-mini"
"""The default model for prices and the tokenizer."""
Count = Callable[[str], int]
"""Counts the tokens of a text."""
Form = Literal["native", "text"]
"""How tools are sent: as a tool array with native calls, or as text."""
FORMS: tuple[Form, ...] = get_args(Form)
Turn = tuple[Usage, ...]
"""The usage of each model call of a turn."""
Measure = Callable[[Turn], float]
_PLANNER_ENDINGS: dict[Decision, str] = dict(
    zip(("call", "finish", "give_up"), ENDINGS, strict=True)
)
_MAX_TOKENS = 1 << 20
"""Large enough that no reply of the reference is cut."""
_NOTES = """\
native: tool array and native calls; text: both as text. fresh: input and output without cached prompt prefixes.
Prices are dollars per million tokens."""


def run_tokens(args: argparse.Namespace) -> None:
    """Count and print; raises UsageError and SettingsError."""
    model = args.model or PRICED_AS
    price = price_book(load_settings(user_paths())).price(model)
    if price is None:
        raise UsageError(
            f"The price of {model} is unknown.", fix=f"Set --model to another, such as {PRICED_AS}."
        )
    trajectories = read_trajectories(args.data, args.split)[: args.limit]
    with counting(model) as (count, tokenizer), progress(len(FORMS) * len(trajectories)) as advance:
        figures = {
            form: spending(asyncio.run(replay(trajectories, count, form, advance)), measures(price))
            for form in FORMS
        }
    rates = {
        rate: float(getattr(price.rates, rate)) for rate in ("input", "cached_input", "output")
    }
    record = {
        "n": len(trajectories),
        **figures,
        "tokenizer": tokenizer,
        "prices": {"model": model, **rates},
    }
    show_record(record, as_json=args.json, notes=_NOTES)


class RecordedModel:
    """Replies from a trajectory in every role, and counts the tokens of its prompts; the cache starts empty."""

    def __init__(self, trajectory: Trajectory, count: Count, form: Form) -> None:
        self._trajectory = trajectory
        self._count = count
        self._prompts: list[tuple[str, ...]] = []
        self.number = 0
        """The index of the current step."""
        self.traits = Traits(
            "recorded", ZERO_PRICE, None, None, native_tools=form == "native", local=True
        )

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._count(text)

    def size(self, request: Request) -> PromptSize:
        """Count the tokens of the prompt."""
        tokens = self._tokens(self._prompt(request))
        return PromptSize(tokens, tokens, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Reply]:
        """Reply with the reference's text or call for this role; calls are counted as chat templates print them."""
        prompt = self._prompt(request)
        cached = max((self._common_tokens(prompt, earlier) for earlier in self._prompts), default=0)
        self._prompts.append(prompt)
        text, call = self._reply(request.role)
        output = (
            self._count(text)
            if call is None or self.traits.native_tools
            else self._count(call_text(call, text))
        )
        if call is not None and self.traits.native_tools:
            output += self._count(call_text(call))
        usage = Usage(input=self._tokens(prompt), cached=cached, output=output)
        yield Reply(text, () if call is None else (call,), usage)

    async def aclose(self) -> None:
        """Do nothing; there is nothing to close."""

    def _reply(self, role: str) -> tuple[str, Call | None]:
        """Return the reference's reply in a role, or as a single model."""
        step, final = self._trajectory.steps[self.number], self._trajectory.final
        if role == PLANNER:
            return f"{step.thought} {_PLANNER_ENDINGS[step.decision]}".strip(), None
        if role == SUMMARIZER:
            return final, None
        if step.decision == "call":
            return "" if role == CALLER else step.thought, Call(step.tool, step.arguments)
        answer = (
            {"answer": final}
            if step.decision == "finish"
            else {"answer": step.thought or final, "give_up": True}
        )
        return "" if step.decision == "give_up" else step.thought, Call(FINISH, answer)

    def _prompt(self, request: Request) -> tuple[str, ...]:
        """Return the prompt as a sequence of tool schemas and messages."""

        def piece(message: Message) -> str:
            calls = message.calls if message.speaker == "assistant" else ()
            return f"{message.speaker}\n{message.text}{''.join(map(call_text, calls))}"

        if self.traits.native_tools:
            return (*(tool.entry for tool in request.tools), *map(piece, request.messages))
        return tuple(map(piece, as_plain_messages(request)))

    def _tokens(self, pieces: Iterable[str]) -> int:
        return sum(self._count(piece) + TOKENS_PER_MESSAGE for piece in pieces)

    def _common_tokens(self, first: tuple[str, ...], second: tuple[str, ...]) -> int:
        """Count the tokens of the longest common prefix of two prompts."""
        pieces = _common_length(first, second)
        tokens = self._tokens(first[:pieces])
        if pieces < min(len(first), len(second)):
            piece = first[pieces]
            tokens += self._count(piece[: _common_length(piece, second[pieces])])
        return tokens


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common prefix of two sequences or texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


async def replay(
    trajectories: Iterable[Trajectory], count: Count, form: Form, advance: Callable[[], None]
) -> list[dict[str, Turn]]:
    """Replay every trajectory as a turn in each mode; `advance` is called after each."""
    turns: list[dict[str, Turn]] = []
    with TemporaryDirectory() as folder, closing(Ledger(Path(folder) / "ledger.sqlite")) as ledger:
        for number, trajectory in enumerate(trajectories, start=1):
            budget = SessionBudget(Gate(ledger))
            budget.enter("bench", number)
            models = {mode: RecordedModel(trajectory, count, form) for mode in MODES}
            turns.append(
                {
                    mode: await _turn(trajectory, mode, model, budget)
                    for mode, model in models.items()
                }
            )
            advance()
    return turns


async def _turn(
    trajectory: Trajectory, mode: str, model: RecordedModel, session_budget: SessionBudget
) -> Turn:
    calls: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, BudgetSettled):
            calls.append(event.usage)

    metered = MeteredModel(model, session_budget.gate, session_budget.account)
    if mode == "single":
        mode_under_test = Single(metered, ModeLimits(_MAX_TOKENS, _MAX_TOKENS))
    else:
        mode_under_test = Umi(metered, metered, metered, ModeLimits(_MAX_TOKENS, _MAX_TOKENS))
    for number in range(len(trajectory.steps)):
        model.number = number
        await mode_under_test.think(view_of(trajectory, number), emit)
    return tuple(calls)


# Figures


def measures(price: Price) -> dict[str, Measure]:
    """Return the measures of a turn: calls, tokens, and dollars at this price.

    `raw` is input and output, `fresh` is that without cached input.
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


def spending(
    turns: Sequence[Mapping[str, Turn]], by: Mapping[str, Measure]
) -> dict[str, dict[str, Any]]:
    """Return means and medians by mode for each measure, and the ratio of the means of umi and single.

    The ratio has a 95 % percentile bootstrap interval over turns; both are None if the mean of single is 0. Raises
    ValueError without turns.
    """
    import numpy as np

    figures: dict[str, dict[str, Any]] = {}
    for name, measure in by.items():
        values = {mode: [float(measure(turn[mode])) for turn in turns] for mode in MODES}
        mean = {mode: fmean(each) for mode, each in values.items()}
        ratio = interval = None
        if mean["single"]:
            draws = resamples(len(turns))
            single = draws @ np.array(values["single"])
            positive = single > 0
            bounds = np.percentile(
                (draws @ np.array(values["umi"]))[positive] / single[positive], TAILS
            )
            ratio, interval = (
                round(mean["umi"] / mean["single"], 4),
                [round(float(bound), 4) for bound in bounds],
            )
        figures[name] = {
            **{
                mode: {"mean": round(mean[mode], 8), "median": round(median(values[mode]), 8)}
                for mode in MODES
            },
            "ratio": ratio,
            "interval": interval,
        }
    return figures
