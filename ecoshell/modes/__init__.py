"""Modes: who thinks. One model (single), three roles (umi), one small model asked small things (stepwise)."""
