"""Judging: whether a result helped, as rules or a classifier tell it (BTP §2.2, §2.4)."""
