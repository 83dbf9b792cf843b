"""The greatest numbers that sizes, lengths and counts may have, wherever they come from: options, settings or files.

Each is far above what anyone uses, and small enough that a folder of a stranger cannot exhaust memory. Settings have
bounds of their own (`sdssm settings` lists them), and models are also limited by the memory of the machine. This module
imports nothing, so that the commands can name the limits in their help.
"""

#: The longest strings of an evaluation, and the most strings of each length.
LONGEST_STRING, MOST_STRINGS = 1_000_000, 1 << 16
#: The longest strings to train on, and the most steps.
LONGEST_TRAINED, MOST_STEPS = 100_000, 10**12
#: The largest seed, and the most seeds of one command: each is a run with a folder.
LARGEST_SEED, MOST_SEEDS = (1 << 63) - 1, 10_000
#: A machine: its states, its transitions (states times symbols), and the letters of a name.
MOST_STATES, MOST_TRANSITIONS, LONGEST_NAME = 100_000, 1 << 22, 1_000
#: The most states of a machine that is built from a name, an expression or an .att file.
MOST_STATES_BUILT = 10_000
#: The classes of a model, which are the outputs of its machine.
MOST_CLASSES = 1 << 31
#: The most short strings that a certificate checks one by one.
MOST_CHECKED = 1 << 22
#: The most states that an extraction distinguishes.
MOST_EXTRACTED = 10_000
#: The most candidates of a search, and the most processes or trainings side by side.
MOST_TRIALS, MOST_PARALLEL = 100_000, 1_024
