"""Tool calls with patterns, queries, expressions and texts that would use unlimited time or memory.

As a program: runs all of them, or the given number. Prints for each call, as a line of JSON, the result, the seconds
over its limit, and the part of those seconds during which an unrelated small process had to wait for a processor; then
the peak memory.
"""

import asyncio
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ecoshell.tools import Tool, ToolOptions, limits_of
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.measuring import peak_mb
from ecoshell.tools.running import contained
from ecoshell.tools.workspace import Workspace

ALL = 300
SECONDS = 0.5
"""The limit of one call."""
UNITS_SECONDS = 3.0
"""The limit of convert_units, whose table of units takes time to build."""
AT_ONCE = 3
PREVIEW_SECONDS = 3.0
"""The limit of a preview."""
Bomb = tuple[str, Mapping[str, Any]]
_NAP, _WORK = 0.04, 0.01
_BYSTANDER = f"""
import time
while True:
    began, until = time.monotonic(), time.process_time() + {_WORK}
    time.sleep({_NAP})
    while time.process_time() < until: pass
    print(began, time.monotonic(), flush=True)
"""

_LOOPS = (
    "(a|a)*b",
    "(a|aa)+$",
    "(a*)*b",
    "(.*)*x",
    "((a?){9}){9}b",
    "(?:a|(?R))*b",
    "(?R)",
    "(a*)(?1)*b",
    "(?|(a)|(aa))*+b|(?R)a",
)
_COUNTED = (
    "(?:a?){%d}b",
    "(?:a{%d}){%d}",
    "(?:(?:a{0,%d}){0,%d}){0,99}b",
    "(?:x|y?|z?){%d}",
    "(?:foobar){e<=%d}",
)
_AROUND = ("%s", "(?:%s)+z", "(?=%s)%s", "(?<=%s)b", "(?i)%s(?:é|E)*", "^(%s)\\1+$")
_STEPS = (
    "[@,@]",
    "{a:@,b:@,c:@}",
    "[@[],@[]]",
    "[to_string(@),to_string(@)]",
    "join('', [to_string(@),to_string(@)])",
    "[@,@][]",
    "map(&[@,@], [@,@])",
    "sort_by([@,@], &to_string(@))",
    "[@,[@,@]][*]",
    "[not_null(@), [@]]",
)
_SUMS = (
    "%s",
    "(%s)!",
    "comb(%s, 6000)",
    "lcm(%s, %s)",
    "exp(%s)^%s",
    "mod(%s, 1e-999)",
    "tan(%s)",
    "log(%s, 1.0000001)",
)
_TERMS = (
    "9^9^9^9^9",
    "1400!!!",
    "10^1e9",
    "2^-1e99",
    "1e999999999",
    "factorial(1400)^factorial(1400)",
)
_UNITS = ("9**9**9**9", "m**99999999999", "(m**9)**9**9**9", "m" * 59, "((((((((((m))))))))))", "m*" * 29 + "m",
          "km/" * 19 + "s", "1e9**1e9*m", "(2**2)**(2**99)*m", "m^" * 20 + "9")  # fmt: skip


def bombs(count: int = ALL) -> list[Bomb]:
    """This many of three hundred calls, spread over all kinds."""
    calls = [
        *itertools.islice(_patterns(), 110),
        *itertools.islice(_queries(), 100),
        *_arithmetic(),
        *_texts(),
    ]
    return calls[: ALL : ALL // count]


def _patterns() -> Iterator[Bomb]:
    counted = [
        pattern.replace("%d", str(times))
        for pattern in _COUNTED
        for times in (30, 9_999, 2_147_483_647)
    ]
    for around, inner in itertools.product(_AROUND, (*_LOOPS, *counted)):
        yield "search_text", {"text": around.replace("%s", inner), "regex": True, "path": "a.txt"}


def _queries() -> Iterator[Bomb]:
    for times, step in itertools.product((12, 18, 26, 60, 999), _STEPS):
        query = "|".join(itertools.islice(itertools.repeat(step, times), 990 // (len(step) + 1)))
        yield "json_query", {"query": query, "text": '[1, [2], {"a": 3}]'}
        yield "json_query", {"query": query, "path": "large.json"}


def _arithmetic() -> Iterator[Bomb]:
    for around, term in itertools.product(_SUMS, _TERMS):
        yield "calculate", {"expression": around.replace("%s", term)}
    for unit in _UNITS:
        yield "convert_units", {"value": "1", "from_unit": unit, "to_unit": "m"}
        yield "convert_units", {"value": "9^9^9", "from_unit": "m", "to_unit": unit}


def _texts() -> Iterator[Bomb]:
    """Changes whose diff takes minutes, and texts that almost match a file with long lines."""
    for count, pattern in itertools.product(
        (1_000, 2_000, 100_000), (("x",), ("a", "b"), ("", "}", "  return"))
    ):
        lines = list(itertools.islice(itertools.cycle(pattern), count))
        yield (
            "preview write_file",
            {"path": "repeated.txt", "content": "\n".join([*lines[1::2], "y", *lines])},
        )
    for sign, length in itertools.product("文中x", (3_000, 50_000, 400_000)):
        yield "preview edit_file", {"path": "long.txt", "old": sign * length + "b", "new": "c"}
        yield "edit_file", {"path": "long.txt", "old": (sign + "中") * (length // 2), "new": "c"}


def filled(root: Path) -> Path:
    """Write the files that the calls use into a workspace."""
    (root / "a.txt").write_text("a" * 4_000 + "c\n" + "foobaz " * 2_000)
    (root / "large.json").write_text(
        json.dumps([{"name": f"user {number}", "list": [number] * 9} for number in range(2_000)])
    )
    (root / "repeated.txt").write_text("x\n" * 2_000)
    (root / "long.txt").write_text(
        "\n".join(sign * length for sign in "中文x" for length in (3_000, 50_000, 400_000))
    )
    return root


async def main(count: int) -> None:
    """Run this many calls, several at a time."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(filled(Path(folder)))
        fast = builtin_tools(workspace, options=ToolOptions(file_seconds=SECONDS))
        slower = builtin_tools(workspace, options=ToolOptions(file_seconds=UNITS_SECONDS))
        tools = {tool.schema.name: tool for tool in fast}
        tools["convert_units"] = next(
            tool for tool in slower if tool.schema.name == "convert_units"
        )
        room, turns = asyncio.Semaphore(AT_ONCE), list[tuple[float, float]]()
        with _bystander(turns):
            rows = await asyncio.gather(*(_set_off(tools, bomb, room) for bomb in bombs(count)))
    for bomb, limit, ended, result in rows:
        waited = sum(
            max(0.0, min(end, ended) - max(began, limit) - _NAP - _WORK) for began, end in turns
        )
        print(json.dumps({"bomb": bomb, "over": ended - limit, "waited": waited, "said": result}))
    shell = int(
        (peak_mb("self") or 0) * 1e6
    )  # unlike getrusage, without the memory of the parent process
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(json.dumps({"shell_bytes": shell, "worker_bytes": workers}))


@contextmanager
def _bystander(turns: list[tuple[float, float]]) -> Iterator[None]:
    """Run a process that uses a little processor time repeatedly; `turns` then has the start and end of each use."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, "-c", _BYSTANDER], stdout=out)
        try:
            yield
            time.sleep(2 * (_NAP + _WORK))
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        for line in out.read().decode().splitlines(keepends=True):
            if line.endswith("\n"):
                began, ended = map(float, line.split())
                turns.append((began, ended))


async def _set_off(
    tools: Mapping[str, Tool], bomb: Bomb, room: asyncio.Semaphore
) -> tuple[str, float, float, str]:
    """Run a call; return the call, the time of its limit, the time of its end and its result."""
    name, arguments = bomb
    tool = tools[name.removeprefix("preview ")]
    async with room:
        started = time.monotonic()
        if name.startswith("preview") and isinstance(tool, FunctionTool):
            result = await asyncio.to_thread(tool.preview, arguments)
        else:
            result = (await contained(tool, arguments, limits_of(tool))).text
        limit = PREVIEW_SECONDS if name.startswith("preview") else limits_of(tool).seconds
        return f"{name} {arguments}"[:200], started + limit, time.monotonic(), result[:300]


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else ALL))
    sys.stdout.flush()
