"""What CATP-LLM's Tables 2 and 3 print of each method and kind of task, and how well QoP recomputes from it."""

import json
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Any

from ecoshell.planning.catp.costs import quality


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One method on one kind of task: mean score, mean price and QoP, each rounded to three decimals."""

    table: int
    tasks: str
    method: str
    score: float
    price: Decimal
    qop: float

    @property
    def error(self) -> float:
        """How far the printed QoP lies from that of the printed score and price."""
        return abs(quality(self.score, self.price) - self.qop)


def printed_rows() -> list[PrintedRow]:
    """All 44 rows."""
    text = files("ecoshell_bench.catp").joinpath("paper_rows.jsonl").read_text(encoding="utf-8")
    return [_row(json.loads(line)) for line in text.splitlines()]


def _row(row: dict[str, Any]) -> PrintedRow:
    return PrintedRow(row["table"], row["tasks"], row["method"], row["score"], Decimal(repr(row["price"])), row["qop"])
