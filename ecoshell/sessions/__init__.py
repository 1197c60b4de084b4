"""Sessions: the event log in SQLite, how it is written without stalling a screen, and how it is exported."""
