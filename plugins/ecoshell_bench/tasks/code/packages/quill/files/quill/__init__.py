"""Plain-text documents of notes."""
