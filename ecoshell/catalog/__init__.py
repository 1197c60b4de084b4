"""What is known: every tool by name, what is registered, how well a tool fits a question, and when a document is worth its tokens."""
