"""How many modules a plain question loads, and how many calls it makes, before the model call."""

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
        if frame not in entered:  # a resumed generator or coroutine is not a new call
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
MODULES = 171
CALLS = 4_700
"""About 4,500, and two for each file in the workspace."""
SPARED = (
    "ecoshell.agent.callbacks",
    "ecoshell.agent.command",
    "ecoshell.agent.tool_graph",
    "ecoshell.agent.scoring",
    "ecoshell.assembly.inventory",
    "ecoshell.cli.event_lines",
    "ecoshell.models.hub",
    "ecoshell.modes.drafting",
    "ecoshell.modes.ranking",
    "ecoshell.planning.btp.redaction",
    "ecoshell.planning.catp",
    "ecoshell.planning.judging",
    "ecoshell.sessions.export",
    "ecoshell.strategies.search",
    "ecoshell.tools.mcp",
    "ecoshell.tui",
)


def test_plain_question_loads_few_modules_before_the_model_call(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text(json.dumps({"text": "4"}) + "\n")
    own = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
        if name in os.environ
    }
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
    report = json.loads(counted)
    assert (answer, report["status"]) == ("4", 0)
    assert len(report["modules"]) <= MODULES, report["modules"]
    assert report["calls"] <= CALLS
    assert not [name for name in report["modules"] if name.startswith(SPARED)]
