"""Commands that look after what ecoshell keeps: tools, sessions, costs, settings and models."""
