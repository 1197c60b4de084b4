"""Colours: themes and what is done without any."""
