"""Parallel plans in a turn: drafted, looked at, run side by side through the guards (CATP-LLM §3, SPEC §3)."""
