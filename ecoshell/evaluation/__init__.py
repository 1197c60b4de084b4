"""Benchmarks: what registration saves, and how fast the shell is."""
