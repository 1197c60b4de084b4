"""Screens over the chat: pickers, settings, help, palette, schemas and the context."""
