"""What an open shell keeps out of memory until a question is on its way."""

import json
import os
import subprocess
import sys
from pathlib import Path

OPENED = """
import asyncio, json, sys
from ecoshell.assembly.shell import assemble
from ecoshell.options import Options

HEAVY = ("llama_cpp", "numpy", "litellm", "openai", "httpx", "urllib.request", "ecoshell.models.remote")
HEAVY += ("huggingface_hub", "http.client")

async def look(shell):
    standing = await shell.standing()
    return [standing.exact, standing.everything_tokens, [name for name in HEAVY if name in sys.modules]]

async def main():
    shell = await assemble(Options(model="embedded"))
    seen = [await look(shell)]
    await shell.warm()
    await asyncio.to_thread(shell.deps.models.current.tokens, "any text")
    seen.append(await look(shell))
    await shell.aclose()
    print(json.dumps(seen))

asyncio.run(main())
"""


def test_an_open_shell_estimates_its_tools_and_loads_its_model_only_for_a_question(tmp_path: Path) -> None:
    environ = {**os.environ, "ECOSHELL_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OPENED], capture_output=True, text=True, env=environ, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (exact, estimate, loaded), (exact_then, counted, loaded_then) = json.loads(done.stdout)
    assert (exact, loaded) == (False, [])
    assert exact_then
    assert 0.5 * counted < estimate < 2 * counted
    assert {"llama_cpp", "numpy"} <= set(loaded_then)
    assert "ecoshell.models.remote" not in loaded_then
