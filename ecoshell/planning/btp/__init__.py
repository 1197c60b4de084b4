"""BTP, budget-constrained tool learning with planning: the uses of each tool that a budget allows (SPEC §2)."""
