"""The plan of a turn: made, kept to, told of, and made anew while the turn runs (SPEC §2)."""
