"""The settings: a TOML file and `ECOSHELL_*` variables, and what a person allowed in a project.

All but `project` need pydantic, which must not be loaded before the first frame: import them inside functions.
"""
