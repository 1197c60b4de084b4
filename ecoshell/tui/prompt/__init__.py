"""The prompt, where questions and commands are typed, with completion, drafts and history."""
