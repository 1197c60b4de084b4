"""The parts of the knapsack: whole numbers, a search, a relaxation, a table."""
