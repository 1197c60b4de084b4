"""The agent in editors, `ecoshell acp` (Agent Client Protocol v1)."""
