"""A map beside a line of the inputs, which is found before the read and taken from the targets.

``map`` is the map with its line, ``statistic`` takes the line from the rows that are summed, and
``family`` adds it to the answer of the map.
"""
