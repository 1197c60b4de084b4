"""`ecoshell bench umi`: agreement of a model's steps with reference trajectories (α-UMi, Appendix C)."""
