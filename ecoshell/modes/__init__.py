"""Modes: who thinks. One model (single), one small model asked one small thing at a time (stepwise)."""
