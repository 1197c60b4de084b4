"""The umi mode: a planner, a caller and a summarizer, each with a model, a prompt and an input of its own (α-UMi)."""

from ecoshell.modes.umi.mode import Trio, Umi

__all__ = ["Trio", "Umi"]
