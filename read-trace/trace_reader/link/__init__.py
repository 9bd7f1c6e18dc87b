"""From columns to a linked trace: which span holds which (nesting), who launched what (launches), in which step (trace)."""
