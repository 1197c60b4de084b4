"""How much the plugin `acp` imports."""

import subprocess
import sys


def test_the_protocol_is_imported_only_when_serving():
    code = "import sys, ecoshell_acp.plugin as p; p.cli_commands(); print({'acp', 'pydantic'} & {*sys.modules})"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )
