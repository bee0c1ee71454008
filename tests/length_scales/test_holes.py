"""Errors in holes: neighbouring rows that are predicted by those around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.holes import FEWEST_HOLES, HOLES, errors_in_holes, holes_of
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_choice import MapChoice, SearchRecord, Trial
from rff_stream.length_scales.map_search import MapSearch
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow

ALPHA = 0.1


def places(rng: Any, n: int = 4000) -> RowWindow:
    """A slow wave over a square, with noise."""
    x = rng.uniform(-3, 3, (n, 2))
    y = np.sin(x[:, :1]) + np.cos(x[:, 1:]) + 0.1 * rng.normal(size=(n, 1))
    return RowWindow(x, y, rng.choice([1.0, 2.0], n))


def test_the_inner_half_of_a_hole_is_farther_from_the_outer_rows_than_they_are(rng: Any) -> None:
    holes = holes_of([places(rng)])
    assert FEWEST_HOLES <= len(holes) <= HOLES
    for hole in holes:
        middle = np.concatenate([hole.hidden.x, hole.known.x]).mean(axis=0)
        inner, outer = (
            np.linalg.norm(each.x - middle, axis=1) for each in (hole.hidden, hole.known)
        )
        assert abs(len(inner) - len(outer)) <= 1
        assert np.median(inner) < np.median(outer)


def test_copies_are_on_one_side_of_a_hole_and_holes_share_no_row(rng: Any) -> None:
    once = places(rng)
    twice = RowWindow(*(np.concatenate([each, each]) for each in (once.x, once.y, once.w)))
    for rows in (once, twice):
        seen = np.concatenate(
            [part.x for hole in holes_of([rows]) for part in (hole.hidden, hole.known)]
        )
        assert len(np.unique(seen, axis=0)) == len(seen)


def test_errors_are_those_of_the_exact_process_with_a_flat_mean(rng: Any) -> None:
    kernel, matrix = rs.Matern(nu=1.5), np.array([[1.2, 0.3], [0.0, 0.8]])
    hole = holes_of([places(rng)])[0]
    own, theirs = hole.known.x @ matrix, hole.hidden.x @ matrix
    inverse = np.linalg.inv(kernel(own, own) + ALPHA * np.diag(1 / hole.known.w))
    mean = (inverse @ hole.known.y).sum() / inverse.sum()
    expected = hole.hidden.y - mean - kernel(theirs, own) @ inverse @ (hole.known.y - mean)
    found = errors_in_holes(MetricFit(kernel, matrix, ALPHA, np.nan), [hole])[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def search_of(rng: Any, *scales: tuple[str, float, float]) -> MapSearch:
    """Candidates by name, length-scale and error at left-out rows, before holes are compared."""
    rows = places(rng)
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], CellShape(400, 256), rng)
    search.regions = [rows]
    for name, scale, error in scales:
        errors = np.full((len(rows.x), 1), error)
        matrix = np.eye(2) / scale
        search.candidates.append(
            Candidate(name, rs.Gaussian(), matrix, ALPHA, search.shape, errors, 0.0)
        )
    return search


def test_of_maps_that_are_as_good_beside_near_rows_the_one_that_fills_holes_is_taken(
    rng: Any,
) -> None:
    """A length-scale of a tenth of the wave was taken for 1 % at left-out rows; holes were flat."""
    search = search_of(rng, ("short", 0.1, 1.0), ("long", 1.5, 1.01), ("far behind", 1.5, 1.2))
    assert search.best.name == "short"
    search._compare_in_holes()
    assert search.best.name == "long"
    short, long, far = search.candidates
    filled, flat = search.error_in_holes(long), search.error_in_holes(short)
    assert filled is not None and flat is not None and filled < flat / 2
    assert search.error_in_holes(far) is None  # it was out of reach


@pytest.mark.parametrize("names", [("one",), ("least", "same")])
def test_maps_that_fill_holes_alike_stay_in_the_order_of_left_out_rows(
    names: tuple[str, ...], rng: Any
) -> None:
    search = search_of(rng, *[(name, 1.5, 1 + 0.01 * i) for i, name in enumerate(names)])
    search._compare_in_holes()
    assert search.best.name == names[0]


def test_a_mean_that_is_worse_in_holes_by_more_than_it_gains_is_not_taken(rng: Any) -> None:
    search = search_of(rng, ("long", 1.5, 1.0), ("short", 0.1, 1.0))
    halves = np.sign(rng.normal(size=search.candidates[0].errors.shape))
    search.candidates[1].errors[:] *= halves  # errors of the two have no correlation
    assert search.second() is not None
    search._compare_in_holes()
    assert search.best.name == "long"
    assert search.second() is None


def test_a_record_shows_errors_in_holes_and_keeps_them() -> None:
    trials = (Trial("a", 0.1, 0.0, 0.0, 1.0, 0.25), Trial("b", 0.2, 0.1, 0.01, 1.0))
    choice = MapChoice(rs.Gaussian(), np.eye(2), CellShape(2, 2), "a", 9, trials)
    record = SearchRecord.of(choice.packed())
    assert record.trials[0] == trials[0]
    assert record.trials == trials  # None is equal to itself, NaN is not
    assert "a, 0.25 in holes  taken" in str(record)
    assert str(record).count("in holes") == 1
