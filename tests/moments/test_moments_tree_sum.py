"""A sum along one fixed tree: bits do not depend on who arrives first."""

from __future__ import annotations

import functools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rff_stream.moments.tree_sum import RunningSum, TreeSum, covers


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


@given(data=st.data(), count=st.integers(1, 60))
def test_a_running_sum_adds_from_left_to_right_whatever_the_order_of_arrival(
    data: st.DataObject, count: int
) -> None:
    terms, total = letters(count), RunningSum[Term]()
    arrived = data.draw(st.permutations(range(count)))
    for place, i in enumerate(arrived):
        total.add(i, terms[i])
        assert all(total.covers(j) for j in arrived[: place + 1])
        assert not any(total.covers(j) for j in arrived[place + 1 :])
        early = sum(i > min(arrived[place + 1 :], default=count) for i in arrived[: place + 1])
        assert len(total.nodes) <= 1 + early, "one sum, and what waits for others"
    found = total.total()
    assert found is not None
    assert found.text == functools.reduce(lambda a, b: a + b, letters(count)).text


@given(data=st.data(), count=st.integers(1, 30))
def test_a_running_sum_goes_on_from_its_nodes(data: st.DataObject, count: int) -> None:
    order = data.draw(st.permutations(range(count)))
    stop = data.draw(st.integers(0, count))
    first, second = RunningSum[Term](), RunningSum[Term]()
    for i in order[:stop]:
        first.add(i, letters(count)[i])
    nodes = first.nodes
    assert all(not covers(a, b) for a in nodes for b in nodes if a != b), "they are disjoint"
    for (level, i), value in data.draw(st.permutations(list(nodes.items()))):
        second.add(i, value, level)
    for i in order[stop:]:
        assert not second.covers(i)
        second.add(i, letters(count)[i])
    found = second.total()
    assert found is not None
    assert found.text == functools.reduce(lambda a, b: a + b, letters(count)).text


def test_a_running_sum_writes_into_its_first_value_only() -> None:
    values, total = [np.full(2, float(i)) for i in range(4)], RunningSum[np.ndarray]()
    for i in (1, 0, 3, 2):
        total.add(i, values[i])
    assert total.total() is values[0]
    assert np.array_equal(values[0], [6.0, 6.0])
    assert [value[0] for value in values[1:]] == [1.0, 2.0, 3.0]


def test_a_first_sum_covers_what_is_before_its_end() -> None:
    assert covers((64, 8), (64, 7)) and not covers((64, 8), (64, 9))
    assert covers((64, 8), (0, 7)) and covers((64, 8), (2, 1)) and covers((64, 8), (3, 0))
    assert not covers((64, 8), (0, 8)) and not covers((64, 6), (2, 1))
    assert not covers((3, 0), (64, 1)), "a tree's node never replaces it"
