"""GGUF files for llama.cpp: LoRA adapters and base models.

For the architecture llama, llama.cpp and transformers order the rows of queries and keys differently. The two numbers
that one angle rotates are adjacent in llama.cpp, and half a head apart in transformers. transformers reorders them when
it reads a GGUF file; this module reverses that.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ecoshell.errors import StoreError, UsageError
from ecoshell.models.gguf import TRAINED_FOR, header, tensor_shapes
from ecoshell.models.llama import Vocabulary
from ecoshell.paths import remedy, replacement

MODULES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The trained matrices of a layer: names in transformers and in llama.cpp."""
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_SPLITS = ("smollm", "llama-bpe", "gpt-2", "qwen2", "default")
"""llama.cpp's names of pre-tokenizers for byte-pair encoding."""
_SAMPLES = (
    "I'm here; they'LL come at 12:45, for 1234567 x 3.14!?",
    "def f(x):\n\treturn  x ** 2   # ok\n\n\n",
    "Grüße aus Köln – ¿qué tal? «déjà vu» 日本語 привет 👍🏽",
)
_ADAPTER_FIX = "Give a file that ecoshell train umi wrote for this base, with its --rank."
_Q8_BLOCK = 32
"""Numbers that share a scale in Q8_0."""


def architecture(base: Path) -> dict[str, int]:
    """Return the numbers of layers, query heads and key heads; raises UsageError unless it is a llama model."""
    metadata = header(base)
    kind = metadata.get("general.architecture", "")
    if kind != "llama":
        raise UsageError(
            f"{base} has the architecture {kind or 'unknown'}; adapters can only be trained for llama.",
            fix="Train the embedded model or another llama model.",
        )
    heads = int(metadata["llama.attention.head_count"])
    keys = int(metadata.get("llama.attention.head_count_kv", heads))
    return {"layers": int(metadata["llama.block_count"]), "attn_q": heads, "attn_k": keys}


def write_adapter(
    trained: Mapping[str, Any], base: Path, file: Path, *, alpha: float, role: str
) -> None:
    """Write the NumPy arrays `layers.N.MODULE.a` (rank × in) and `.b` (out × rank) for this base.

    Raises StoreError; an existing file is then unchanged.
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
    _write(writer, file)


def read_adapter(base: Path, file: Path, rank: int) -> dict[str, Any]:
    """Return the arrays that `write_adapter` wrote; raises UsageError for other files."""
    gguf, shape = import_module("gguf"), architecture(base)
    try:
        tensors = {tensor.name: tensor.data.copy() for tensor in gguf.GGUFReader(file).tensors}
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(
            f"{file} cannot be read as an adapter: {error}.", fix=_ADAPTER_FIX
        ) from error
    numbers, matrices = tensor_shapes(base), dict[str, Any]()
    for layer in range(shape["layers"]):
        for module, name in MODULES.items():
            columns, rows = numbers[f"blk.{layer}.{name}.weight"]
            for part, expected in (("a", (rank, columns)), ("b", (rows, rank))):
                matrix = tensors.get(f"blk.{layer}.{name}.weight.lora_{part}")
                if matrix is None or matrix.shape != expected:
                    raise UsageError(
                        f"{file} is not an adapter of rank {rank} for {base.name}.",
                        fix=_ADAPTER_FIX,
                    )
                is_rotated = part == "b" and name in shape
                matrix = _half_apart(matrix, shape[name]) if is_rotated else matrix
                matrices[f"layers.{layer}.{module}.{part}"] = matrix
    return matrices


def write_base(folder: Path, file: Path) -> None:
    """Convert a Hugging Face folder to a GGUF file with 8-bit matrices.

    Raises UsageError unless it contains a llama model with byte-pair encoding, and StoreError if the file cannot be
    written.
    """
    gguf, library = import_module("gguf"), import_module("transformers")
    library.utils.logging.disable_progress_bar()
    try:
        model = library.AutoModelForCausalLM.from_pretrained(
            folder, dtype="float32", local_files_only=True
        )
        tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{folder} contains no readable model: {error}", fix=_CONVERT) from error
    kind = model.config.model_type
    tensors = dict(_tensors(model)) if kind == "llama" else {}
    if not tensors:
        raise UsageError(
            f"{folder} contains a model of type {kind}, not a plain llama model.", fix=_CONVERT
        )
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in _SAMPLES]
    for split in _SPLITS:
        with TemporaryDirectory() as trial:
            tokens = Path(trial) / "tokens.gguf"
            _write(_described(folder, model.config, tokenizer, split), tokens)
            vocabulary = Vocabulary(tokens)
            read = [vocabulary.tokens(text) for text in _SAMPLES]
            vocabulary.close()
        if read == expected:
            break
    else:
        raise UsageError(f"llama.cpp has no equivalent of the tokenizer of {folder}.", fix=_CONVERT)
    writer = _described(folder, model.config, tokenizer, split)
    for name, array in tensors.items():
        if array.ndim == 2 and array.shape[1] % _Q8_BLOCK == 0:
            q8 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, array)
    _write(writer, file)


_CONVERT = "Convert it with llama.cpp's convert_hf_to_gguf.py and use local:FILE.gguf."


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors with llama.cpp's names; nothing for unknown tensors or other rotary embeddings."""
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    names = {f"{module}.weight": f"{name}.weight" for module, name in _OUTER.items()}
    for layer in range(config.num_hidden_layers):
        for module, name in (MODULES | _NORMS).items():
            names[f"model.layers.{layer}.{module}.weight"] = f"blk.{layer}.{name}.weight"
    state = model.state_dict()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if state.keys() - names.keys() or config.rope_parameters["rope_type"] != "default":
        return
    for key, value in state.items():
        array, name = value.float().numpy(), names[key]
        kind = name.split(".")[-2]
        yield name, _side_by_side(array, heads[kind]) if kind in heads else array


def _described(folder: Path, config: Any, tokenizer: Any, split: str) -> Any:
    """Return a writer with the model's metadata and tokens, and a pre-tokenizer of `_SPLITS`."""
    gguf = import_module("gguf")
    writer = gguf.GGUFWriter(None, "llama")
    writer.add_name(folder.resolve().name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=config.vocab_size)
    if not special.merges or type(tokenizer.backend_tokenizer.decoder).__name__ != "ByteLevel":
        raise UsageError(f"The tokenizer of {folder} does not use byte pairs.", fix=_CONVERT)
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    kinds = dict.fromkeys(texts, gguf.TokenType.NORMAL)
    for number, token in tokenizer.added_tokens_decoder.items():
        kinds[number] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(
        [texts.get(number, f"[PAD{number}]") for number in range(config.vocab_size)]
    )
    writer.add_token_types(
        [kinds.get(number, gguf.TokenType.UNUSED) for number in range(config.vocab_size)]
    )
    special.add_to_gguf(writer, quiet=True)
    return writer


def _write(writer: Any, file: Path) -> None:
    """Write a file atomically; raises StoreError."""
    try:
        with TemporaryDirectory() as folder:  # The writer opens its own files.
            temporary = Path(folder) / file.name
            writer.write_header_to_file(temporary)
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            with replacement(file, mode=0o644) as fresh:
                fresh.write(temporary.read_bytes())
    except OSError as error:
        fix = remedy(error, "Choose another --out.")
        raise StoreError(f"{file} cannot be written: {error.strerror}.", fix=fix) from error


def _side_by_side(matrix: Any, heads: int) -> Any:
    """Return rows in transformers' order as llama.cpp orders them."""
    rows, columns = matrix.shape
    return (
        matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _half_apart(matrix: Any, heads: int) -> Any:
    """Return rows in llama.cpp's order as transformers orders them."""
    rows, columns = matrix.shape
    return (
        matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )
