"""Models by name: local GGUF files, the embedded model, remote ones through litellm, and scripts for tests."""
