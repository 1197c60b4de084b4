"""Training of local models (GLPFT, SPEC §4; CAORL, SPEC §3) and of the classifier of tool results."""
