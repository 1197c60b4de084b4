"""The stepwise mode: a model too small to follow a protocol is asked one small thing at a time."""

from ecoshell.modes.stepwise.mode import Stepwise

__all__ = ["Stepwise"]
