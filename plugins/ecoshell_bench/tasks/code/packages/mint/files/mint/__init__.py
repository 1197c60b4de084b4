"""Bookkeeping in a text file."""
