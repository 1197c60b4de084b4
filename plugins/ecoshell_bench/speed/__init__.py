"""How quick the shell is: each figure a median, beside a baseline measured in the same run (`ecoshell bench speed`)."""
