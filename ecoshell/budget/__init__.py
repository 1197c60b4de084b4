"""The budget: prices, one ledger for all processes of the user, and the gate every model call passes."""
