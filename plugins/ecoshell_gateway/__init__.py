"""A local HTTP server that puts any agent's model calls under the user's caps."""
