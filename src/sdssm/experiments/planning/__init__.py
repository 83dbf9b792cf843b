"""Plans: the runs of an experiment, their folders, what is left to train, and how long it takes."""
