"""How little of the program a plain question loads and runs before the model is asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

ASKED = """
import json, sys, threading
from importlib import import_module

loaded, entered, names = [], set(), []

def count(frame, event, argument):
    if event == "call" and not loaded and "/ecoshell/" in frame.f_code.co_filename:
        if frame not in entered:  # a generator or a coroutine that goes on is no further call
            names.append(frame.f_code.co_name)
        if frame.f_code.co_flags & 0x2A0:
            entered.add(frame)

threading.setprofile(count)
sys.setprofile(count)
main = import_module("ecoshell.cli").main
script = import_module("ecoshell.models.script")
stream = script.ScriptModel.stream

def asked(*arguments):
    loaded.extend(name for name in sys.modules if name.partition(".")[0] == "ecoshell")
    return stream(*arguments)

script.ScriptModel.stream = asked
status = main(["--model", "script:replies.jsonl", "ask", "2+2"])
sys.setprofile(None)
print(json.dumps({"status": status, "modules": sorted(loaded), "calls": len(names)}))
"""
MODULES = 130
CALLS = 3_300
"""Some 2,750, and two for each file of the folder it is asked in."""
SPARED = (
    "ecoshell.agent.callbacks",
    "ecoshell.agent.command",
    "ecoshell.agent.tool_graph",
    "ecoshell.agent.scoring",
    "ecoshell.assembly.inventory",
    "ecoshell.cli.render",
    "ecoshell.models.hub",
    "ecoshell.modes.drafting",
    "ecoshell.modes.ranking",
    "ecoshell.planning.btp.redaction",
    "ecoshell.planning.catp",
    "ecoshell.planning.judging",
    "ecoshell.plugins",
    "ecoshell.sessions.export",
    "ecoshell.strategies.search",
    "ecoshell.tools.mcp",
    "ecoshell.tui",
)


def test_a_plain_question_loads_and_runs_little_before_the_model_is_asked(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text(json.dumps({"text": "4"}) + "\n")
    own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    environ = {**own, "ECOSHELL_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer, _, counted = done.stdout.strip().rpartition("\n")
    found = json.loads(counted)
    assert (answer, found["status"]) == ("4", 0)
    assert len(found["modules"]) <= MODULES, found["modules"]
    assert found["calls"] <= CALLS
    assert not [name for name in found["modules"] if name.startswith(SPARED)]
