"""Sweeps: searching settings over a grid, at random or with Optuna, with early stopping."""
