"""What opens over the chat: pickers, settings, help."""
