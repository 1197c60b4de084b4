"""GGUF files for llama.cpp: LoRA adapters, which it lays over the weights they were trained for, and bases.

llama.cpp keeps the rows of queries and keys of the architecture llama in another order than transformers: there the two
numbers that one angle rotates stand half a head apart, here side by side. transformers puts them in its order when it
reads a GGUF file; what was learned on them, or stands in a folder of Hugging Face, is put back here.
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
"""What is trained of each layer, as transformers and as llama.cpp call it."""
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_SPLITS = ("smollm", "llama-bpe", "gpt-2", "qwen2", "default")
"""How llama.cpp can part a text before byte pairs are merged, by the names it has for it."""
_SAMPLES = (
    "I'm here; they'LL come at 12:45, for 1234567 x 3.14!?",
    "def f(x):\n\treturn  x ** 2   # ok\n\n\n",
    "Grüße aus Köln – ¿qué tal? «déjà vu» 日本語 привет 👍🏽",
)
_WRITTEN = "Name a file that ecoshell train umi wrote for this base, with its --rank."
_BLOCK = 32
"""Numbers that share a scale in Q8_0."""


def architecture(base: Path) -> dict[str, int]:
    """The layers of a base, and its heads of queries and of keys; raises UsageError unless it is of the kind llama."""
    metadata = header(base)
    kind = metadata.get("general.architecture", "")
    if kind != "llama":
        raise UsageError(
            f"{base} is of the architecture {kind or 'unknown'}, and adapters are trained for llama alone.",
            fix="Train the embedded model, or another one of that architecture.",
        )
    heads = int(metadata["llama.attention.head_count"])
    keys = int(metadata.get("llama.attention.head_count_kv", heads))
    return {"layers": int(metadata["llama.block_count"]), "attn_q": heads, "attn_k": keys}


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
    _write(writer, file)


def read_adapter(base: Path, file: Path, rank: int) -> dict[str, Any]:
    """The matrices that `write_adapter` has written, as it takes them; raises UsageError where they are not such."""
    gguf, shape = import_module("gguf"), architecture(base)
    try:
        tensors = {tensor.name: tensor.data.copy() for tensor in gguf.GGUFReader(file).tensors}
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"{file} cannot be read as an adapter: {error}.", fix=_WRITTEN) from error
    numbers, matrices = tensor_shapes(base), dict[str, Any]()
    for layer in range(shape["layers"]):
        for module, name in MODULES.items():
            columns, rows = numbers[f"blk.{layer}.{name}.weight"]
            for part, expected in (("a", (rank, columns)), ("b", (rows, rank))):
                matrix = tensors.get(f"blk.{layer}.{name}.weight.lora_{part}")
                if matrix is None or matrix.shape != expected:
                    raise UsageError(f"{file} is no adapter of rank {rank} for {base.name}.", fix=_WRITTEN)
                apart = part == "b" and name in shape
                matrices[f"layers.{layer}.{module}.{part}"] = _half_apart(matrix, shape[name]) if apart else matrix
    return matrices


def write_base(folder: Path, file: Path) -> None:
    """Write a model of a folder of Hugging Face as a GGUF file, its matrices in eight bits.

    Raises UsageError for a folder that holds no model of the kind llama whose tokens are pairs of bytes, and StoreError
    when the file cannot be written.
    """
    gguf, library = import_module("gguf"), import_module("transformers")
    library.utils.logging.disable_progress_bar()
    try:
        model = library.AutoModelForCausalLM.from_pretrained(folder, dtype="float32", local_files_only=True)
        tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{folder} holds no model that can be read: {error}", fix=_CONVERT) from error
    kind = model.config.model_type
    tensors = dict(_tensors(model)) if kind == "llama" else {}
    if not tensors:
        raise UsageError(f"{folder} holds a model of the kind {kind}, and not plainly llama.", fix=_CONVERT)
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
        raise UsageError(f"llama.cpp reads no text as the tokenizer of {folder} does.", fix=_CONVERT)
    writer = _described(folder, model.config, tokenizer, split)
    for name, array in tensors.items():
        if array.ndim == 2 and array.shape[1] % _BLOCK == 0:
            eight = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, eight), raw_dtype=eight)
        else:
            writer.add_tensor(name, array)
    _write(writer, file)


_CONVERT = "Convert it by llama.cpp's convert_hf_to_gguf.py, and give local:FILE.gguf."


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """A model's tensors by llama.cpp's names; none where one of them has none, or angles are not those of llama."""
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
    """A writer that knows a model's numbers and its tokens, before which texts are parted in one of `_SPLITS`."""
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
        raise UsageError(f"The tokens of {folder} are no pairs of bytes.", fix=_CONVERT)
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    kinds = dict.fromkeys(texts, gguf.TokenType.NORMAL)
    for number, token in tokenizer.added_tokens_decoder.items():
        kinds[number] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([texts.get(number, f"[PAD{number}]") for number in range(config.vocab_size)])
    writer.add_token_types([kinds.get(number, gguf.TokenType.UNUSED) for number in range(config.vocab_size)])
    special.add_to_gguf(writer, quiet=True)
    return writer


def _write(writer: Any, file: Path) -> None:
    """Write a file whole or not at all; raises StoreError."""
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


def _half_apart(matrix: Any, heads: int) -> Any:
    """Rows that llama.cpp has side by side, as transformers has them."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
