"""Runs beside each other: two, many, and a gate."""
