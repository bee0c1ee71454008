"""A sum along one fixed tree: bits do not depend on who arrives first."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rff_stream.moments.tree_sum import TreeSum


class Term:
    """A sum that shows its own brackets."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __add__(self, other: Term) -> Term:
        return Term(f"({self.text}{other.text})")


def pairwise(level: list[Term]) -> Term:
    """Neighbours are added, a lone last one moves up."""
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [a + b for a, b in pairs] + level[len(level) - len(level) % 2 :]
    return level[0]


def letters(count: int) -> list[Term]:
    return [Term(f"[{i}]") for i in range(count)]


@given(data=st.data(), count=st.integers(1, 70))
def test_the_tree_is_pairwise_whatever_the_order_of_arrival(
    data: st.DataObject, count: int
) -> None:
    terms, total = letters(count), TreeSum[Term]()
    for i in data.draw(st.permutations(range(count))):
        total.add(i, terms[i])
    found = total.total()
    assert found is not None
    assert found.text == pairwise(terms).text


@given(count=st.integers(1, 200), power=st.integers(0, 6))
def test_segments_of_a_power_of_two_cut_nothing(count: int, power: int) -> None:
    """The cluster sums a segment, the driver the segments: together the tree of all leaves."""
    terms, size, total = letters(count), 2**power, TreeSum[Term]()
    starts = list(range(0, count, size))
    for index in reversed(range(len(starts))):
        total.add(index, pairwise(terms[starts[index] : starts[index] + size]))
    found = total.total()
    assert found is not None
    assert found.text == pairwise(terms).text


@given(data=st.data(), count=st.integers(1, 60), seed=st.integers(0, 1000))
def test_the_same_bits_from_any_order(data: st.DataObject, count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(count, 3)) * 10.0 ** np.arange(3)
    sums = []
    for order in (range(count), data.draw(st.permutations(range(count)))):
        total = TreeSum[np.ndarray]()
        for i in order:
            total.add(i, values[i])
        sums.append(np.asarray(total.total()))
    assert np.array_equal(sums[0], sums[1])


@given(count=st.integers(1, 300), window=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_little_is_held(count: int, window: int, seed: int) -> None:
    """log₂(count) + 1 nodes where values come in order, so many again for each that is late."""
    rng = np.random.default_rng(seed)
    waiting, total, depth = list(range(count)), TreeSum[int](), math.log2(count) + 1
    last = -1
    while waiting:
        i = waiting.pop(int(rng.integers(min(window, len(waiting)))))
        total.add(i, 1)
        last = max(last, i)
        late = sum(i < last for i in waiting[:window])
        assert len(total._nodes) <= depth * (late + 1)
    assert total.total() == count
    assert total.total() == count, "asking changes nothing"


def test_nothing_sums_to_none() -> None:
    assert TreeSum[int]().total() is None


def test_values_are_added_not_changed() -> None:
    values = [np.ones(2), np.ones(2), np.ones(2)]
    total = TreeSum[np.ndarray]()
    for i, value in enumerate(values):
        total.add(i, value)
    assert total.total() is not None
    assert all((value == 1).all() for value in values)
