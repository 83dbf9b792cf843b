"""Results: records of runs, the cells of a table, claims, timings, and the folder that holds them."""
