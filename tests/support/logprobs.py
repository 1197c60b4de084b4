"""Log-probabilities by llama.cpp, as a reference for another implementation of the same model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ecoshell.models.llama import llama_library


def logprobs(
    base: Path, prefix: Sequence[int], targets: Sequence[Sequence[int]], adapter: Path | None = None
) -> list[float]:
    """The log-probability (natural log, summed over its tokens) of each target after the prefix."""
    from llama_cpp import Llama  # the extra `local`

    llama_library()  # keeps the output of llama.cpp from the terminal
    model = Llama(
        str(base), lora_path=adapter and str(adapter), n_ctx=512, logits_all=True, verbose=False
    )
    sums: list[float] = []
    for target in targets:
        model.reset()
        model.eval([*prefix, *target])
        rows = np.asarray(
            model.scores[len(prefix) - 1 : len(prefix) + len(target) - 1], dtype=np.float64
        )
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        sums.append(float(rows[np.arange(len(target)), list(target)].sum()))
    model.close()
    return sums
