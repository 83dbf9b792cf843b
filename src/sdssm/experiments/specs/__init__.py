"""Experiments as data: parsing of TOML files, packaged experiments and published numbers."""
