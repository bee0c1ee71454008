"""Several maps from one read, compared by left-out errors: the family of ``Candidates(…)``."""
