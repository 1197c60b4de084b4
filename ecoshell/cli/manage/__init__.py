"""Commands that manage settings, sessions, models, tools and records."""
