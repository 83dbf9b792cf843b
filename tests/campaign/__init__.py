"""The campaign: attacks on the whole program."""
