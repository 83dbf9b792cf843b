"""Report cards of all models of the catalogue: train, measure what is missing, and write the table."""
