"""Models worth pulling from Hugging Face."""

from dataclasses import dataclass

from ecoshell.models.hub_names import HubName


@dataclass(frozen=True, slots=True)
class BfclScore:
    """A result on the Berkeley Function Calling Leaderboard; versions are not comparable with one another."""

    version: int
    percent: float
    source: str
    """URL of the page that publishes the figure."""

    def __str__(self) -> str:
        return f"{self.percent:g} (v{self.version})"


@dataclass(frozen=True, slots=True)
class Recommended:
    """A model worth pulling; sizes in gigabytes, rounded."""

    name: HubName
    download: float
    memory: int
    """Memory that suffices for the file and a context of 8,192 tokens."""
    licence: str
    bfcl: BfclScore | None

    @property
    def summary(self) -> str:
        """Size, memory and licence in a phrase."""
        return f"about {self.download:g} GB, runs in {self.memory:g} GB of memory, {self.licence}"


_CARD = "https://huggingface.co/"
_APACHE = "Apache-2.0"
RECOMMENDED = (
    Recommended(
        HubName("unsloth/Qwen3.5-2B-GGUF", "Q4_K_M"),
        1.3,
        2,
        _APACHE,
        BfclScore(4, 43.6, f"{_CARD}Qwen/Qwen3.5-2B"),
    ),
    Recommended(
        HubName("ibm-granite/granite-4.1-3b-GGUF", "Q4_K_M"),
        2.1,
        4,
        _APACHE,
        BfclScore(3, 60.8, f"{_CARD}ibm-granite/granite-4.1-3b"),
    ),
    Recommended(
        HubName("unsloth/Qwen3-4B-Instruct-2507-GGUF", "Q4_K_M"),
        2.5,
        4,
        _APACHE,
        BfclScore(3, 61.9, f"{_CARD}Qwen/Qwen3-4B-Instruct-2507"),
    ),
    Recommended(
        HubName("unsloth/Qwen3.5-4B-GGUF", "Q4_K_M"),
        2.7,
        4,
        _APACHE,
        BfclScore(4, 50.3, f"{_CARD}Qwen/Qwen3.5-4B"),
    ),
    Recommended(
        HubName("ibm-granite/granite-4.1-8b-GGUF", "Q4_K_M"),
        5.3,
        8,
        _APACHE,
        BfclScore(3, 68.3, f"{_CARD}ibm-granite/granite-4.1-8b"),
    ),
    Recommended(
        HubName("unsloth/Qwen3.5-9B-GGUF", "Q4_K_M"),
        5.7,
        8,
        _APACHE,
        BfclScore(4, 66.1, f"{_CARD}Qwen/Qwen3.5-9B"),
    ),
)
"""Models with their own format for tool calls, ordered by size."""
_MEMORY_SHARE = 0.6
"""Share of the machine's memory that a downloaded model may take."""


def suggested_download(memory: int | None) -> Recommended:
    """Return the largest recommended model that fits the machine's memory in bytes, or the smallest one."""
    room = RECOMMENDED[0].memory if memory is None else _MEMORY_SHARE * memory / 1e9
    return max(
        (model for model in RECOMMENDED if model.memory <= room),
        key=_quality,
        default=RECOMMENDED[0],
    )


def _quality(model: Recommended) -> tuple[int, int, float]:
    """Order by memory, then by whether it answers without reasoning first."""
    return model.memory, int("Instruct" in model.name.repo), model.download
