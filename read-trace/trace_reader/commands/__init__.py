"""What `read-trace` does with the traces that it is given: an action a file, each with a function `run`."""
