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
PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
CLIENT = shlex.join((sys.executable, str(Path(__file__).parent.parent / "support" / "conformance_client.py")))


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Runs the suite, which is installed in a folder of its own: npx's is shared, and two that fill it spoil it."""
    npm = shutil.which("npm") or pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("suite")
    subprocess.run([npm, "install", "--silent", "--prefix", str(folder), *PACKAGES], check=True)
    programs = folder / "node_modules" / ".bin"
    environment = {**os.environ, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [programs / "conformance", *arguments]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # what comes of a scenario is among the errors
        return subprocess.run(command, **both, text=True, check=False, env=environment)

    return run


@pytest.mark.parametrize(("revision", "count"), [("2025-11-25", 18), ("2026-07-28", 32)])
def test_every_scenario_that_a_revision_requires_of_a_client_passes(suite, revision, count):
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
