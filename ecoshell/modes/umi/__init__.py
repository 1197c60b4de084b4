"""The umi mode: a planner, a caller and a summarizer, each with a model, a prompt and an input of its own (α-UMi)."""

from ecoshell.modes.umi.mode import Trio, Umi
from ecoshell.modes.umi.small import SmallCaller, SmallRoles, SmallSummarizer

__all__ = ["SmallCaller", "SmallRoles", "SmallSummarizer", "Trio", "Umi"]
