"""The weights of one GGUF file in memory, and the LoRA adapters that were loaded for them."""

from pathlib import Path
from typing import Any

from ecoshell.models.gguf import llama_library, load_adapter, load_model


class Weights:
    """A loaded base model; contexts over it must be freed before it is."""

    def __init__(self, path: Path, *, gpu_layers: int) -> None:
        """Load the weights (seconds); raises ModelMissing or ModelBroken."""
        self.path = path
        self.handle: Any = load_model(path, gpu_layers=gpu_layers)
        self._library = llama_library()
        self._adapters: dict[Path, Any] = {}

    def adapter(self, path: Path) -> Any:
        """The adapter of a file, loaded when first asked for; raises ModelMissing or ModelBroken."""
        if path not in self._adapters:
            self._adapters[path] = load_adapter(self.handle, path, self.path)
        return self._adapters[path]

    def drop(self, path: Path) -> None:
        """Free an adapter that no context uses any more; nothing happens to one that was never loaded."""
        if path in self._adapters:
            self._library.llama_adapter_lora_free(self._adapters.pop(path))

    def close(self) -> None:
        """Free the weights and all adapters."""
        if self.handle:
            self._library.llama_model_free(self.handle)
            self.handle = None
            self._adapters.clear()
