"""What an open shell keeps out of memory until a question is on its way."""

import json
import os
import subprocess
import sys
from pathlib import Path

OPENED = """
import asyncio, json, sys
from ecoshell.agent import NonInteractive
from ecoshell.assembly.shell import assemble
from ecoshell.options import Options

HEAVY = ("llama_cpp", "numpy", "litellm", "openai", "httpx", "urllib.request", "ecoshell.models.remote")
HEAVY += ("huggingface_hub", "pydantic", "http.client", "ecoshell.agent.tool_graph", "ecoshell.planning.catp.costs")

async def look(shell):
    status = await shell.status()
    return [status.exact, status.everything_tokens, [name for name in HEAVY if name in sys.modules]]

async def main():
    shell = await assemble(Options(model="embedded"), NonInteractive())
    seen = [await look(shell)]
    await shell.warm()
    await asyncio.to_thread(shell.deps.models.current.sizes, ["any text"])
    shell.read_ahead()
    while "ecoshell.agent.tool_graph" not in sys.modules:
        await asyncio.sleep(0.01)
    seen.append(await look(shell))
    await shell.aclose()
    print(json.dumps(seen))

asyncio.run(main())
"""


def test_an_open_shell_estimates_its_tools_and_loads_its_model_only_for_a_question(
    tmp_path: Path,
) -> None:
    environ = {**os.environ, "ECOSHELL_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OPENED],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    (exact, estimate, loaded), (exact_then, counted, loaded_then) = json.loads(done.stdout)
    assert (exact, loaded) == (False, [])
    assert exact_then
    assert 0.5 * counted < estimate < 2 * counted
    assert {"llama_cpp", "numpy"} <= set(loaded_then)
    assert "ecoshell.models.remote" not in loaded_then


LOADED = """
import asyncio, sys
from ecoshell.agent import NonInteractive
from ecoshell.assembly.shell import AT_HAND, assemble
from ecoshell.options import Options

async def main():
    shell = await assemble(Options(model="embedded"), NonInteractive() if sys.argv[1] == "person" else None)
    print(sorted(set(AT_HAND) & set(sys.modules)) == sorted(AT_HAND), any(name in sys.modules for name in AT_HAND))
    await shell.aclose()

asyncio.run(main())
"""


def test_only_where_a_person_is_there_is_loaded_what_a_person_may_ask_for(tmp_path: Path) -> None:
    environ = {**os.environ, "ECOSHELL_HOME": str(tmp_path)}
    told = [
        subprocess.run(
            [sys.executable, "-c", LOADED, who],
            capture_output=True,
            text=True,
            env=environ,
            check=True,
            timeout=120,
        ).stdout.split()
        for who in ("person", "nobody")
    ]
    assert told == [["True", "True"], ["False", "False"]]
