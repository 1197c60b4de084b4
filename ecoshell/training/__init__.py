"""Training of models that run on this machine: GLPFT (SPEC §4) and CAORL (SPEC §3), with the extra `train`."""
