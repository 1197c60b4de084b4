"""Imports at module level load no heavy libraries, which functions import when they need them."""

import subprocess
import sys

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
)
"""Without pydantic, which the settings import."""
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import ecoshell, ecoshell_bench
for package in (ecoshell, ecoshell_bench):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name != "ecoshell.__main__":
            importlib.import_module(module.name)
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""


def test_importing_every_module_loads_nothing_heavy_and_prints_nothing():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, *HEAVY],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("\n", "")


def test_the_user_interface_is_exported_by_agent():
    from ecoshell import agent
    from ecoshell.agent.user_interface import UserInterface

    assert UserInterface is agent.UserInterface
