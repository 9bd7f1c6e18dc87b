"""From a file's bytes to columns: blocks (source), pieces and typed events (decode), and what is broken (repair)."""
