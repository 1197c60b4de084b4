"""`ecoshell bench tasks`: natural requests in temporary workspaces, with checked results."""
