"""The report card of a model."""
