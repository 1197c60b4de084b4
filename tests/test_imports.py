"""Imports at module level load no heavy libraries, which functions import when they need them."""

import subprocess
import sys

import pytest

HEAVY = (
    "litellm",
    "openai",
    "mcp",
    "llama_cpp",
    "numpy",
    "tiktoken",
    "httpx",
    "lxml",
    "keyring",
    "pint",
    "jsonschema",
    "yaml",
    "tomlkit",
)
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
name, *heavy = sys.argv[1:]
package = importlib.import_module(name)
for module in pkgutil.walk_packages(package.__path__, f"{name}."):
    if module.name != "ecoshell.__main__":
        importlib.import_module(module.name)
print(*[name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("package", "heavy"), [("ecoshell", (*HEAVY, "pydantic")), ("ecoshell_bench", HEAVY)]
)
def test_importing_every_module_loads_nothing_heavy_and_prints_nothing(package, heavy):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, package, *heavy],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("\n", "")


def test_the_user_interface_is_exported_by_agent():
    from ecoshell import agent
    from ecoshell.agent.user_interface import UserInterface

    assert UserInterface is agent.UserInterface
