"""Generated LoRA adapters for the embedded model."""

from pathlib import Path

import pytest

WIDTH = 576
"""Size of the embedded model's hidden states and of its queries."""
LAYERS = 30


def make_adapter(
    path: Path,
    *,
    scale: float,
    arch: str = "llama",
    width: int = WIDTH,
    layers: int = LAYERS,
    role: str = "",
) -> Path:
    """Write a rank-4 adapter of every query projection; scale 0 changes nothing, 0.1 changes the output strongly."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    import numpy as np

    rank, draw = 4, np.random.default_rng(layers)
    writer = gguf.GGUFWriter(path, arch=arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    if role:
        writer.add_string("ecoshell.trained_for", role)
    for layer in range(layers):
        name = f"blk.{layer}.attn_q.weight"
        writer.add_tensor(f"{name}.lora_a", draw.normal(size=(rank, width)).astype(np.float32))
        writer.add_tensor(
            f"{name}.lora_b", (scale * draw.normal(size=(WIDTH, rank))).astype(np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
