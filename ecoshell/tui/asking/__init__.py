"""Questions to the person, asked in place."""
