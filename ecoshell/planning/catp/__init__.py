"""CATP: branching plans that know what they cost (CATP-LLM)."""
