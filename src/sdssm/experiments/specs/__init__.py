"""Experiments as data: what a TOML file says, checked, and the experiments and published numbers of the package."""
