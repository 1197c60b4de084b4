"""Models worth pulling from Hugging Face."""

from dataclasses import dataclass

from ecoshell.models.hub_names import HubName


@dataclass(frozen=True, slots=True)
class BfclScore:
    """A result on the Berkeley Function Calling Leaderboard; versions are not comparable with one another."""

    version: int
    percent: float
    source: str  # URL of the page that publishes the figure

    def __str__(self) -> str:
        return f"{self.percent:g} (v{self.version})"


@dataclass(frozen=True, slots=True)
class Recommended:
    """A model worth pulling; sizes in gigabytes, rounded."""

    name: HubName
    download: float
    memory: int  # suffices for the file and a context of 8,192 tokens
    licence: str
    bfcl: BfclScore | None

    @property
    def summary(self) -> str:
        """Size, memory and licence in a phrase."""
        return f"about {self.download:g} GB, runs in {self.memory:g} GB of memory, {self.licence}"


RECOMMENDED = tuple(
    Recommended(
        HubName(repo, "Q4_K_M"),
        download,
        memory,
        "Apache-2.0",
        BfclScore(version, percent, f"https://huggingface.co/{card}"),
    )
    for repo, download, memory, version, percent, card in (
        ("unsloth/Qwen3.5-2B-GGUF", 1.3, 2, 4, 43.6, "Qwen/Qwen3.5-2B"),
        ("ibm-granite/granite-4.1-3b-GGUF", 2.1, 4, 3, 60.8, "ibm-granite/granite-4.1-3b"),
        ("unsloth/Qwen3-4B-Instruct-2507-GGUF", 2.5, 4, 3, 61.9, "Qwen/Qwen3-4B-Instruct-2507"),
        ("unsloth/Qwen3.5-4B-GGUF", 2.7, 4, 4, 50.3, "Qwen/Qwen3.5-4B"),
        ("ibm-granite/granite-4.1-8b-GGUF", 5.3, 8, 3, 68.3, "ibm-granite/granite-4.1-8b"),
        ("unsloth/Qwen3.5-9B-GGUF", 5.7, 8, 4, 66.1, "Qwen/Qwen3.5-9B"),
    )
)
"""Models with their own format for tool calls, ordered by size."""
_MEMORY_SHARE = 0.6  # of the machine's memory, for a downloaded model


def suggested_download(memory: int | None) -> Recommended:
    """Return the largest recommended model that fits the machine's memory in bytes, or the smallest one.

    Of several, one that answers without reasoning first is preferred.
    """
    room = 0 if memory is None else _MEMORY_SHARE * memory / 1e9
    fitting = [model for model in RECOMMENDED if model.memory <= room]
    return max(
        fitting or RECOMMENDED[:1],
        key=lambda model: (model.memory, "Instruct" in model.name.repo, model.download),
    )
