"""Stock, prices and orders of a warehouse."""
