"""Statistics: sums over rows that one pass computes."""
