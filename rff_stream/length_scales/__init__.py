"""What is found on rows in memory before the read: length-scales, kernels and metrics.

``whole_space``, ``whole_space_evidence``: one map of the whole space, by a small one's evidence.
``map_search``: cells, by ``candidates`` that compete; ``map_choice`` is what was taken. Its steps
are those of ``scale_search`` and of ``metric_search``, and ``search`` is what both share.
``window_evidence`` climbs the evidence of ``windows`` of rows; ``left_out`` tells errors at
left-out rows of cells. ``relevant_inputs``: which inputs matter, for all.
"""
