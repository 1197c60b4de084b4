"""The protocol's public conformance suite for clients.

Runs with `ECOSHELL_REAL_SERVERS=1` only, because it is downloaded from npm together with Node.js. Scenarios run one
after another, because each starts a client with a helper and has time limits.
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
    not os.environ.get("ECOSHELL_REAL_SERVERS"),
    reason="set ECOSHELL_REAL_SERVERS=1 to download and run the suite",
)
PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
CLIENT = shlex.join(
    (sys.executable, str(Path(__file__).parent.parent / "support" / "conformance_client.py"))
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A function that runs the suite; installed in a separate folder, because npx's folder is shared."""
    npm = shutil.which("npm") or pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("suite")
    subprocess.run([npm, "install", "--silent", "--prefix", str(folder), *PACKAGES], check=True)
    programs = folder / "node_modules" / ".bin"
    environment = {**os.environ, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [programs / "conformance", *arguments]
        output = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }  # Results are written to both.
        return subprocess.run(command, **output, text=True, check=False, env=environment)

    return run


@pytest.mark.parametrize(("revision", "count"), [("2025-11-25", 18), ("2026-07-28", 32)])
def test_all_required_client_scenarios_pass(suite, revision, count):
    listed = suite("list", "--requirements", revision).stdout.partition("Client scenarios")[2]
    required = re.findall(r"^  - (\S+)$", listed.partition("Run and reported")[0], re.MULTILINE)
    assert len(required) == count
    failed = {}
    for scenario in required:
        options = ("--scenario", scenario, "--spec-version", revision, "--timeout", "600000")
        done = suite("client", "--command", CLIENT, *options)
        if done.returncode or "OVERALL: PASSED" not in done.stdout:
            failed[scenario] = done.stdout[-2_000:]
    assert failed == {}
