"""Answers: pure functions of sums -> frozen result values, in NumPy and SciPy alone.

The sums are moments. Some answers also take rows that are in memory: those of the pilot or of the
sample that moments keep, to choose a penalty or to test what was fitted.
"""
