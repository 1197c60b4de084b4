"""The transcript: events as blocks of text, painted only while visible."""
