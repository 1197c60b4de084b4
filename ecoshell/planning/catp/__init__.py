"""CATP: cost-aware tool graphs (CATP-LLM)."""
