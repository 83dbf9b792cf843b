"""How large a report page may be. This module imports nothing, so that the command can name the size in its help."""

#: The largest page, in megabytes, unless the caller says otherwise, and the bounds of that.
MAX_MB, LEAST_MB, MOST_MB = 4.8, 0.5, 1_000.0
