"""What a trace is to everything above: columns, rows of them, and slices one can look at."""
