"""Length-scales that are found on rows in memory, each file named by the family of maps it serves.

``whole_space``, ``whole_space_evidence``: one map of the whole space, by a small one's evidence.
``cell_windows``: cells, by windows of neighbouring rows; grids take their first look from it.
``relevant_inputs``: which inputs matter, for both.
"""
