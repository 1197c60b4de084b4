"""Loads documents, and keeps the ones that are used."""
