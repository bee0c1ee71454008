"""Statistics: what a pass gives its rows to, and how the sums are packed for a checkpoint.

``moments`` holds the values that add up, ``statistics`` how a pass fills them, and ``families``
which of both a kind of feature map needs.
"""
