"""What being imported may load: the heavy libraries wait in the functions that need them."""

import subprocess
import sys

HEAVY = ("litellm", "openai", "mcp", "llama_cpp", "numpy", "tiktoken", "httpx", "lxml", "keyring", "pint", "jsonschema")
"""The settings are pydantic's, so that alone comes with them."""
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import ecoshell, ecoshell_bench
for package in (ecoshell, ecoshell_bench):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name != "ecoshell.__main__":
            importlib.import_module(found.name)
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""


def test_importing_every_module_loads_nothing_heavy_and_says_nothing():
    done = subprocess.run([sys.executable, "-c", IMPORT_EVERYTHING, *HEAVY], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_what_has_moved_can_be_imported_by_its_old_names():
    from ecoshell import agent
    from ecoshell.agent.user_interface import UserInterface

    assert UserInterface is agent.UserInterface
