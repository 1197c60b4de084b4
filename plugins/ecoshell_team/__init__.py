"""A ledger in PostgreSQL whose caps a team shares."""
