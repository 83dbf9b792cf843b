"""Running a plan: training and evaluation on this machine or on a Ray cluster."""
