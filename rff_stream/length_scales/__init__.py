"""Length-scales that are found on rows in memory, each file named by the family of maps it serves.

``whole`` and ``whole_evidence``: one map of the whole space, by the evidence of a small one.
``cell_windows``: cells, by windows of neighbouring rows; grids take their first look from it.
``relevance``: which inputs matter, for both.
"""
