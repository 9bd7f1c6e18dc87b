"""What a trace says, as plain numbers: steps, kernels, ops, the dispatch tree, and what differs between traces."""
