"""The ranks of a job beside each other: who waits for whom."""
