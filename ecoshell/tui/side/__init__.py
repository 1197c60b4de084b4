"""Beside the transcript: the budget, the plan, the tools, who thinks; and the lines that stand for them."""
