"""The report page: one HTML file with everything that run folders and results folders hold, made without torch."""
