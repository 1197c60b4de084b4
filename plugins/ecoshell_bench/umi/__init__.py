"""How often a model takes the step that a reference takes: `ecoshell bench umi` (α-UMi, Appendix C)."""
