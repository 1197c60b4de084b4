"""Modes: which models play. `single` has one model, `umi` a planner, a caller and a summarizer."""
