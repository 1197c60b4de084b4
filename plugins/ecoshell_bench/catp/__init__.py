"""What branching plans cost, take and are worth: `ecoshell bench catp` (CATP-LLM §5)."""
