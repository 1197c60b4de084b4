"""The public conformance suite of the protocol, for clients: every scenario that a revision requires passes.

`ECOSHELL_REAL_SERVERS=1` runs it: it is downloaded from npm, with a Node.js that is new enough for it. Scenarios run
one after another, as each starts a client with a helper, and has its times.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytestmark = pytest.mark.skipif(
    not os.environ.get("ECOSHELL_REAL_SERVERS"), reason="ECOSHELL_REAL_SERVERS=1 downloads the suite and runs it"
)
SUITE = ("-y", "-p", "node@22", "-p", "@modelcontextprotocol/conformance@0.2.0-alpha.12", "conformance")
CLIENT = shlex.join((sys.executable, str(Path(__file__).parent.parent / "support" / "conformance_client.py")))


def suite(*arguments: str) -> "subprocess.CompletedProcess[str]":
    npx = shutil.which("npx") or pytest.skip("there is no npx")
    return subprocess.run([npx, *SUITE, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("revision", "count"), [("2025-11-25", 18), ("2026-07-28", 31)])
def test_every_scenario_that_a_revision_requires_of_a_client_passes(revision, count):
    listed = suite("list", "--requirements", revision).stdout.partition("Client scenarios")[2]
    required = re.findall(r"^  - (\S+)$", listed.partition("Run and reported")[0], re.MULTILINE)
    assert len(required) == count
    failed = {}
    for scenario in required:
        given = ("--scenario", scenario, "--spec-version", revision, "--timeout", "600000")
        done = suite("client", "--command", CLIENT, *given)
        if done.returncode or "OVERALL: PASSED" not in done.stdout:
            failed[scenario] = done.stdout[-2_000:]
    assert failed == {}
