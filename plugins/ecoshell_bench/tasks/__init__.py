"""`ecoshell bench tasks`: natural requests in throw-away workspaces, checked by what came of them."""
