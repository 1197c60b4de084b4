"""`bench umi --tokens`: what the trio takes beside one model, on recorded turns and without a model."""

import argparse
import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from ecoshell.assembly.parts import load_settings, price_book
from ecoshell.budget.price import Price
from ecoshell.errors import UsageError
from ecoshell.models.tokens import ByteCounter, counter_for
from ecoshell.paths import user_paths
from ecoshell_bench.umi.recorded import FORMS, Count
from ecoshell_bench.umi.reference import read_trajectories
from ecoshell_bench.umi.spending import measures, spending
from ecoshell_bench.umi.spending_report import Measured, Priced, as_json, as_table
from ecoshell_bench.umi.splitting import take
from ecoshell_bench.umi.telling import progress
from ecoshell_bench.umi.turns import replay

PRICED_AS = "openai/gpt-5-mini"
"""Whose price and tokenizer count unless `--model` says otherwise."""


def run_tokens(args: argparse.Namespace) -> str:
    """What is to be printed; raises UsageError and SettingsError."""
    model = args.model or PRICED_AS
    price = _price(model)
    trajectories = take(read_trajectories(args.data), args.split)[: args.limit]
    measured: Measured = {}
    with _counting(model) as (count, tokenizer), progress(len(FORMS) * len(trajectories)) as advance:
        for form in FORMS:
            turns = asyncio.run(replay(trajectories, count, form, advance))
            measured[form] = {name: spending(turns, measure) for name, measure in measures(price).items()}
    priced = Priced(model, price, tokenizer, len(trajectories))
    return as_json(measured, priced) if args.json else as_table(measured, priced)


def _price(model: str) -> Price:
    price = price_book(load_settings(user_paths())).price(model)
    if price is None:
        raise UsageError(f"The price of {model} is not known.", fix=f"Name another with --model, such as {PRICED_AS}.")
    return price


@contextmanager
def _counting(model: str) -> Generator[tuple[Count, str]]:
    """What counts tokens, each text once, and its name."""
    counter = counter_for(model)
    try:
        if not counter.wait():
            counter = ByteCounter()
        yield cache(counter.count), counter.name
    finally:
        counter.close()
