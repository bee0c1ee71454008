"""Cells of random trees, each with columns and sums of its own: the family of ``features="local"``.

``map`` says which rows share a cell and what their columns are, ``moments`` what is summed,
``family`` how a fit is planned, drawn and answered. From sums to answers: ``spectrum`` and
``evidence`` solve, ``posterior`` predicts, ``calibration`` and ``classes`` are for classifiers.
"""
