"""Tools: what they are (base), functions as tools (function), and the ones that come with ecoshell (builtin)."""
