"""No cap is exceeded: concurrent clients, connections cut at every stage, absurd usage, and killed gateways."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
from gateway_play import CHAT, TOKEN
from ledger_totals import wrong_totals
from odd_provider import Answer, Body, OddProvider

from ecoshell.budget import NANO, PriceBook
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import Usage
from ecoshell.paths import Paths
from ecoshell_gateway.serving import session_of

CLIENTS = 32
SEED = 7
ABSURD = (
    None,
    {},
    {"prompt_tokens": -1, "completion_tokens": 1},
    {"prompt_tokens": 10**14, "completion_tokens": 1},
    "x",
)
_LONGEST_PROMPT = 400


class Biller:
    """Answers at random and adds up what a real provider would bill."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nano = 0
        self.answers = 0
        price = PriceBook().price(f"openai/{CHAT}")
        assert price is not None
        self._price = price

    def answer(self, body: Body) -> Answer:
        """Bill at most the prompt and the limit; some replies are cut off, and some reports are missing or absurd."""
        size = sum(len(message["content"]) for message in body["messages"])
        prompt = max(1, size // (1 + size % 4))  # the same for the same prompt
        output = self.rng.randint(1, body["max_completion_tokens"])
        self.nano += self._price.cost(Usage(prompt, output))
        self.answers += 1
        report = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
        }
        dice = self.rng.random()
        cut = self.rng.randint(0, 4) if dice < 0.15 else None
        usage = self.rng.choice(ABSURD) if 0.15 <= dice < 0.3 else report
        status = self.rng.choice((500, 502, 504)) if 0.3 <= dice < 0.34 else 200
        return Answer(status=status, usage=usage, cut_after=cut, pieces=self.rng.randint(0, 4))


class Gateways:
    """A gateway process that can be killed and started again on its port, under the same cap."""

    def __init__(self, home: Path, upstream: str, budget: str) -> None:
        self._home = home
        self._options = [
            "--budget",
            budget,
            "--upstream-openai",
            upstream,
            "--token",
            TOKEN,
            "--loop-guard",
            "off",
        ]
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None
        self.is_up = asyncio.Event()

    async def start(self) -> None:
        """Start and wait until it listens."""
        command = [
            sys.executable,
            "-m",
            "ecoshell",
            "gateway",
            "--port",
            str(self.port),
            *self._options,
        ]
        environ = {**os.environ, "ECOSHELL_HOME": str(self._home)}
        self.process = await asyncio.create_subprocess_exec(
            *command, env=environ, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), 120)).decode()
        self.port = int(line.rpartition(":")[2])
        self.is_up.set()

    async def end(self, number: signal.Signals) -> None:
        """End the process with a signal."""
        assert self.process is not None
        self.is_up.clear()
        self.process.send_signal(number)
        await self.process.wait()


async def torture(
    home: Path, *, requests: int, kills: int, budget: str
) -> tuple[Biller, Counter[str]]:
    """Send the requests while the gateway is killed again and again; return the bill and the outcomes."""
    rng = random.Random(SEED)
    biller = Biller(rng)
    outcomes: Counter[str] = Counter()
    sent = 0
    async with OddProvider(biller.answer) as provider:
        gateways = Gateways(home, provider.address, budget)
        await gateways.start()

        async def client(http: httpx.AsyncClient) -> None:
            nonlocal sent
            while sent < requests:
                await gateways.is_up.wait()
                sent += 1
                text = "x" * rng.randint(1, _LONGEST_PROMPT)
                message = {"role": "user", "content": text}
                limit, streams = rng.randint(16, 400), rng.random() < 0.6
                body = {
                    "model": CHAT,
                    "max_completion_tokens": limit,
                    "messages": [message],
                    "stream": streams,
                }
                outcomes[await _send(http, f"http://127.0.0.1:{gateways.port}", body, rng)] += 1

        async def killer() -> None:
            for number in range(1, kills + 1):
                while sent < number * requests // (kills + 1):  # noqa: ASYNC110 - clients count
                    await asyncio.sleep(0.01)
                await gateways.end(signal.SIGKILL)
                await gateways.start()

        async with httpx.AsyncClient(
            trust_env=False, timeout=60, headers={"authorization": f"Bearer {TOKEN}"}
        ) as http:
            await asyncio.gather(killer(), *(client(http) for _ in range(CLIENTS)))
        await gateways.end(signal.SIGTERM)
    return biller, outcomes


async def _send(http: httpx.AsyncClient, url: str, body: Body, rng: random.Random) -> str:
    """Send one request; some clients leave before the reply, or in the middle of it."""
    leaves = rng.random()
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(0.02 if leaves < 0.1 else 60):
            async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_raw():
                    if leaves > 0.9:
                        return "left"
                return str(response.status_code)
    await asyncio.sleep(0.01)
    return "broken"


@pytest.mark.parametrize(
    ("requests", "kills", "cents"),
    [
        (400, 2, 2),
        pytest.param(20_000, 100, 200, marks=pytest.mark.slow),
    ],
)
async def test_nothing_exceeds_the_cap(requests: int, kills: int, cents: int, tmp_path: Path):
    biller, outcomes = await torture(tmp_path, requests=requests, kills=kills, budget=f"{cents}c")
    cap = cents * NANO // 100
    with closing(Ledger(Paths.under(tmp_path).ledger_file)) as ledger:
        row = ledger.session_row(session_of(TOKEN))
        assert row is not None
        assert row.spent_nano is not None
        counted = row.spent_nano + row.held_nano
        assert wrong_totals(ledger) == ()
        assert ledger.barred() == {}
    amounts = (f"{nano / NANO:.4f}" for nano in (biller.nano, counted, cap))
    print(
        f"{requests} requests, {kills} kills: {dict(outcomes)}; billed, counted, cap: {', '.join(amounts)}"
    )
    assert biller.nano <= counted <= cap
    assert outcomes["200"] > requests // 20
    assert outcomes["402"] > 0
