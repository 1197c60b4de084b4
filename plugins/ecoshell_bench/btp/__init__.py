"""What a plan saves on recorded runs: `ecoshell bench btp` (BTP §3)."""
