"""What one trace shows: facts, each computed from its rows."""
