"""The side panels (budget, plan, tools, roles), the title bar and the summary line."""
