"""Answers: pure functions Moments -> frozen result values, in NumPy and SciPy alone."""
