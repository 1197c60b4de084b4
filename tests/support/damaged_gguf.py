"""Damaged copies of a tiny GGUF model, and the results of opening them.

As a program: `damaged_gguf.py FOLDER COUNT` prints for each copy, as a line of JSON, the exit status of the trial of
the file (negative for a signal) and, after a successful trial, the exit status and outcome of a process that opened the
file as the shell does and sent a request.
"""

import asyncio
import json
import os
import random
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

WIDTH, VOCABULARY = 32, 300
_SECONDS = 60
_MEMORY = 4_000_000_000


def tiny_model(path: Path) -> Path:
    """Write a llama model with one layer, random weights and a vocabulary of bytes."""
    import gguf
    import numpy as np

    draw = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_type("model")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_tokenizer_model("llama")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    tokens += [chr(0x4E00 + number) for number in range(VOCABULARY - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in square}
    shapes |= dict.fromkeys(("token_embd.weight", "output.weight"), (VOCABULARY, WIDTH))
    shapes |= dict.fromkeys(
        ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"), (WIDTH,)
    )
    for name, shape in shapes.items():
        writer.add_tensor(name, draw.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def damaged(sound: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged copies, cycling through the kinds of damage at random places, mostly before the weights."""
    chance, head = random.Random(11), len(sound) - 4 * WIDTH * (7 * WIDTH + 2 * VOCABULARY + 3)
    kinds: tuple[Callable[[bytearray, random.Random, int], None], ...] = (
        _flip,
        _flip_near_the_beginning,
        _flip_weights,
        _cut,
        _lengthen,
        _retype,
        _zero,
        _scramble,
    )
    for number in range(count):
        kind, changed = kinds[number % len(kinds)], bytearray(sound)
        kind(changed, chance, head)
        yield f"{number} {kind.__name__}", bytes(changed)


def _flip(data: bytearray, chance: random.Random, head: int) -> None:
    for _ in range(chance.choice([1, 3, 30])):
        data[chance.randrange(4, head)] ^= 1 << chance.randrange(8)


def _flip_near_the_beginning(data: bytearray, chance: random.Random, head: int) -> None:
    data[chance.randrange(4, 500)] ^= 1 << chance.randrange(8)


def _flip_weights(data: bytearray, chance: random.Random, head: int) -> None:
    for _ in range(100):
        data[chance.randrange(head, len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random, head: int) -> None:
    del data[chance.randrange(4, chance.choice([64, head, len(data)])) :]


def _lengthen(data: bytearray, chance: random.Random, head: int) -> None:
    """Make the number of tensors or entries, or the length of a text or array, far too large."""
    place = chance.choice([8, 16, 24, chance.randrange(24, head)])
    data[place : place + 8] = struct.pack(
        "<Q", chance.choice([2**63 - 1, 2**64 - 1, 2**40, 2**31, 10**6, 300])
    )


def _retype(data: bytearray, chance: random.Random, head: int) -> None:
    """Change the type of a value, which follows its key."""
    keys = [b"llama.", b"tokenizer.ggml.", b"general."]
    place = data.find(chance.choice(keys), chance.randrange(24, head // 2))
    length = int.from_bytes(data[place - 8 : place], "little") if place > 8 else 0
    place = place + length if 0 < length < 64 else 24
    data[place : place + 4] = struct.pack("<I", chance.choice([*range(14), 99, 2**32 - 1]))


def _zero(data: bytearray, chance: random.Random, head: int) -> None:
    place, length = chance.randrange(4, head), chance.choice([1, 8, 64, 4_096])
    data[place : place + length] = bytes(length)


def _scramble(data: bytearray, chance: random.Random, head: int) -> None:
    place, length = chance.randrange(4, head), chance.choice([4, 32, 1_000])
    data[place : place + length] = chance.randbytes(length)


def main(folder: Path, count: int) -> None:
    """Open all copies in forked processes, so that llama.cpp is imported only once."""
    from llama_cpp import llama_cpp  # noqa: F401 - the slow import

    sound = tiny_model(folder / "tiny.gguf").read_bytes()
    for name, data in (("sound", sound), *damaged(sound, count)):
        path = folder / "model.gguf"
        path.write_bytes(data)
        trial = _forked(_try, path)
        opened, outcome = (
            (_forked(_open, path), (folder / "outcome").read_text()) if trial >= 0 else (0, "")
        )
        print(
            json.dumps({"name": name, "tried": trial, "opened": opened, "said": outcome}),
            flush=True,
        )


def _try(path: Path) -> None:
    from ecoshell.models import llama

    sys.argv = ["trial", str(path)]
    exec(llama._TRY, {})


def _open(path: Path) -> None:
    """Open the file and send a request, as the shell does after a successful trial."""
    from ecoshell.errors import EcoshellError
    from ecoshell.messages import Message
    from ecoshell.models import Reply, Request, llama
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel

    async def ask() -> str:
        model = LocalModel(path, options=EngineOptions(gpu_layers=0, threads=1))
        request = Request((Message("user", "Hi"),), want="text", max_tokens=3)
        async for piece in model.stream(request):
            if isinstance(piece, Reply):
                return "answered"
        return "no reply"

    llama.try_file = lambda _: None  # opened in this process at once
    try:
        outcome = asyncio.run(ask())
    except EcoshellError as error:
        outcome = f"error: {error}"
    except BaseException:  # noqa: BLE001 - the test reports any exception
        outcome = traceback.format_exc()
    path.with_name("outcome").write_text(outcome)


def _forked(work: Callable[[Path], None], path: Path) -> int:
    """Run `work` in a forked process; return its exit status, or the negative number of its signal."""
    path.with_name("outcome").write_text("")
    child = os.fork()
    if not child:
        try:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            signal.alarm(_SECONDS)
            work(path)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
