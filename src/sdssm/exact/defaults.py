"""Defaults of the functions of this package, and so of their commands, which must not import torch to print them."""

#: Encoding of the machine's states and order of the column norm in `compile`, and the model that it builds.
ENCODING, COLUMN_NORM, MODEL, LAYERS = "one-hot", 1.2, "sd-ssm", 1
#: Strings on which `sdssm compile` checks the model.
CHECKED_STRINGS = 4
#: Short strings that `certify` checks one by one, and the lengths up to which it counts and searches.
SHORT_STRINGS, LONGEST_PROOF, LONGEST_SEARCH = 1 << 17, 1_000_000, 1_000
#: How `extract` and `snap` find a machine, and the most states that they distinguish.
METHOD, MAX_STATES = "states", 1_024
#: Lengths at which `extract` and `snap` compare machine and model at the end, and the strings for each of them.
COMPARED_LENGTHS, COMPARED_STRINGS = (5, 10, 20, 40, 100, 500), 512
#: The last length of `horizon`, the number of its strings and their seed.
LONGEST_MEASURED, MEASURED_STRINGS, MEASURED_SEED = 1_000_000, 64, 1
