"""Columns of many levels as numbers, the means of their levels, in front of any map.

:mod:`~rff_stream.level_means.means` finds the means, :mod:`~rff_stream.level_means.map` is the map
behind them, :mod:`~rff_stream.level_means.family` draws it and answers.
"""
