"""`ecoshell bench gateway`: latency, throughput and memory of the gateway, compared with the direct connection."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ecoshell.errors import EcoshellError
from ecoshell_bench.printing import show
from ecoshell_bench.speed.measuring import Measurement, compared, cpu_seconds, resident_mb

CLIENTS = 32
HAS_PROC = Path("/proc/self/stat").exists()
_TOKEN = "bench"
_START_SECONDS = 60.0
_WARM_UP = 20
_MEMORY_SHARE = 10
"""Memory is compared between this fraction of the streamed requests and all of them."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the provider and of the gateway in front of it, and the gateway's process."""

    direct: int
    gateway: int
    pid: int


def run(args: argparse.Namespace) -> int:
    """Measure and print; raises EcoshellError."""
    rows = asyncio.run(_collect(args.requests, args.streams, as_json=args.json))
    if args.json:
        show(json.dumps({"rows": list(map(asdict, rows))}))
    return 0


async def _collect(requests: int, streams: int, *, as_json: bool) -> list[Measurement]:
    rows: list[Measurement] = []
    async with _servers() as ports:
        async for row in measure(ports, requests, streams):
            rows.append(row)
            if not as_json:
                baseline = "–" if row.baseline is None else f"{row.baseline:,.4g}"
                ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
                show(
                    f"{row.what:<24} {row.value:>10,.4g} {row.unit:<9} baseline {baseline:>10}   ratio {ratio:>6}"
                )
    return rows


async def measure(ports: Ports, requests: int, streams: int) -> AsyncIterator[Measurement]:
    """Yield the latency of one client, the throughput of `CLIENTS` clients, and the memory over streamed requests."""
    times: dict[int, list[float]] = {ports.gateway: [], ports.direct: []}
    async with _Client(ports.gateway) as gateway, _Client(ports.direct) as direct:
        for number in range(requests + _WARM_UP):
            for client in (gateway, direct):
                started = time.perf_counter()
                await client.ask(streams=False)
                if number >= _WARM_UP:
                    times[client.port].append(1_000 * (time.perf_counter() - started))
    latency = compared("latency", times[ports.gateway], times[ports.direct], "ms")
    yield latency
    if latency.baseline is not None:
        yield Measurement("added_latency", latency.value - latency.baseline, "ms")
    for name, is_stream in (("throughput", False), ("throughput_streamed", True)):
        started = cpu_seconds(ports.pid) if HAS_PROC else 0.0
        rate = await _rate(ports.gateway, requests, streams=is_stream)
        used = cpu_seconds(ports.pid) - started if HAS_PROC else None
        direct_rate = await _rate(ports.direct, requests, streams=is_stream)
        yield Measurement(name, rate, "per s", direct_rate, rate / direct_rate)
        if used is not None:
            yield Measurement(f"{name}_cpu", 1_000 * used / requests, "ms each")
    if not HAS_PROC:
        return
    first = streams // _MEMORY_SHARE
    await _rate(ports.gateway, first, streams=True)
    base_mb = resident_mb(ports.pid)
    await _rate(ports.gateway, streams - first, streams=True)
    final_mb = resident_mb(ports.pid)
    yield Measurement(f"memory_after_{streams}", final_mb, "MB", base_mb, final_mb / base_mb)


async def _rate(port: int, requests: int, *, streams: bool) -> float:
    """Return the requests per second of concurrent clients."""
    remaining = requests

    async def client() -> None:
        nonlocal remaining
        async with _Client(port) as connection:
            while remaining > 0:
                remaining -= 1
                await connection.ask(streams=streams)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return requests / (time.perf_counter() - started)


class _Client:
    """One connection that sends requests one after the other."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "_Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._writer.close()

    async def ask(self, *, streams: bool) -> None:
        """Send a request and read the whole reply; raises EcoshellError unless it succeeds."""
        messages = [{"role": "user", "content": "What is 17 * 23? Answer with the number only."}]
        body: dict[str, Any] = {
            "model": "gpt-4.1-mini",
            "max_completion_tokens": 100,
            "messages": messages,
            "stream": streams,
        }
        if streams:
            body["stream_options"] = {"include_usage": True}
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {_TOKEN}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        head_bytes = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head_bytes.partition(b"\r\n")[0]:
            raise EcoshellError(f"A request failed: {head_bytes[:60]!r}")
        length = head_bytes.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length:
            await self._reader.readexactly(int(length))
        else:
            while size := int(await self._reader.readline(), 16):
                await self._reader.readexactly(size + 2)
            await self._reader.readline()


@asynccontextmanager
async def _servers() -> AsyncGenerator[Ports]:
    """Run a provider and a gateway in front of it, with a separate ledger."""
    with TemporaryDirectory() as home:
        async with _process({}, "-m", "ecoshell_bench.gateway_upstream") as (_, line):
            port = int(line)
            options = (
                "--budget",
                "1000",
                "--upstream-openai",
                f"http://127.0.0.1:{port}",
                "--loop-guard",
                "off",
            )
            command = ("-m", "ecoshell", "gateway", "--port", "0", "--token", _TOKEN, *options)
            async with _process({"ECOSHELL_HOME": home}, *command) as (gateway, listening):
                yield Ports(port, int(listening.rpartition(":")[2]), gateway.pid)


@asynccontextmanager
async def _process(
    variables: Mapping[str, str], *arguments: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Run a Python program and return its first line; raises EcoshellError without one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
        if not line:
            raise EcoshellError(f"{arguments[1]} did not start.")
        yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
