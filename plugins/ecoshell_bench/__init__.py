"""The benchmarks of ecoshell, `ecoshell bench`: a plugin like any other, and the example of one."""
