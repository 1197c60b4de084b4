"""Settings become objects, in this room and nowhere else."""
