"""LoRA adapters as GGUF files, which llama.cpp lays over the weights they were trained for.

llama.cpp keeps the rows of queries and keys of the architecture llama in another order than transformers: there the two
numbers that one angle rotates stand half a head apart, here side by side. transformers puts them in its order when it
reads a GGUF file; what was learned on them is put back here.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ecoshell.errors import StoreError, UsageError
from ecoshell.files import remedy, replacement
from ecoshell.models.gguf import TRAINED_FOR, header

MODULES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What is trained of each layer, as transformers and as llama.cpp call it."""


def architecture(base: Path) -> dict[str, int]:
    """The layers of a base, and its heads of queries and of keys; raises UsageError unless it is of the kind llama."""
    told = header(base)
    kind = told.get("general.architecture", "")
    if kind != "llama":
        raise UsageError(
            f"{base} is of the architecture {kind or 'unknown'}, and adapters are trained for llama alone.",
            fix="Train the embedded model, or another one of that architecture.",
        )
    heads = int(told["llama.attention.head_count"])
    keys = int(told.get("llama.attention.head_count_kv", heads))
    return {"layers": int(told["llama.block_count"]), "attn_q": heads, "attn_k": keys}


def write_adapter(trained: Mapping[str, Any], base: Path, file: Path, *, alpha: float, role: str) -> None:
    """Write the matrices `layers.N.MODULE.a` (rank × in) and `.b` (out × rank), as NumPy arrays, for this base.

    Raises StoreError when that cannot be done; the file that was there then stays.
    """
    gguf, numpy = import_module("gguf"), import_module("numpy")
    shape = architecture(base)
    writer = gguf.GGUFWriter(None, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_string(TRAINED_FOR, role)
    for layer in range(shape["layers"]):
        for module, name in MODULES.items():
            a, b = (trained[f"layers.{layer}.{module}.{part}"] for part in "ab")
            if name in shape:
                b = _side_by_side(b, shape[name])
            for part, matrix in (("a", a), ("b", b)):
                narrow = numpy.ascontiguousarray(matrix, dtype=numpy.float16)
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{part}", narrow)
    try:
        with TemporaryDirectory() as folder:  # the writer opens its files itself
            made = Path(folder) / file.name
            writer.write_header_to_file(made)
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            with replacement(file, mode=0o644) as fresh:
                fresh.write(made.read_bytes())
    except OSError as error:
        fix = remedy(error, "Choose another --out.")
        raise StoreError(f"{file} cannot be written: {error.strerror}.", fix=fix) from error


def _side_by_side(matrix: Any, heads: int) -> Any:
    """Rows that transformers has half a head apart, as llama.cpp has them."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
