"""Planning: what a budget allows of each tool, computed and never acted on."""
