"""Strategies: in what order an agent thinks and acts, as generators that do no I/O."""
