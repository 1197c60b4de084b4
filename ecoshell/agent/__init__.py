"""The agent: a turn from question to answer, guards before tools, approval, context, and the shell interfaces hold."""
