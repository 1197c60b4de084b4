"""`ecoshell bench speed`: speed and memory of the shell."""
