"""BTP, budget-constrained tool learning with planning (SPEC §2): past uses become values, and values a knapsack."""
