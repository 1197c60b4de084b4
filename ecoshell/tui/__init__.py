"""The Textual chat: widgets that show what the core says happened; nothing in here thinks."""
