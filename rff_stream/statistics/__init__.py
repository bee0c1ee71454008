"""Statistics: what a pass sums over rows, each a plain value that adds.

:mod:`rff_stream.contracts` says what a statistic is and how its sums are packed for a checkpoint;
``groups`` makes one of every label, class or fold out of any other. The values that moments are
stand in ``moments``; ``families`` says which of both a kind of feature map needs.
"""
