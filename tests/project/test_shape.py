"""The figures of `shape` are what they say; what they hold of the package is in `test_project`."""

from __future__ import annotations

import numpy as np
import pytest

import rff_stream as rs
import shape
from rff_stream.moments import packed_size, row_start


def test_a_way_counts_files_functions_and_switches():
    """packed_size calls nothing; a map's call stays in the files of features."""
    assert shape.way_of(lambda: packed_size(3)) == shape.Way(1, 1, 0)
    twice = shape.way_of(lambda: (packed_size(3), row_start(0, 3), packed_size(3)))
    assert twice == shape.Way(1, 2, 0)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 8, rng=0)
    way = shape.way_of(lambda: (packed_size(3), features(np.zeros((3, 2))), packed_size(3)))
    assert way.files >= 3 and way.switches >= 2


def test_a_floor_is_above_all_that_it_imports():
    found = shape.floors()
    assert found["_array"] == 0 and found["kernels"] < found["features"] < found["cli"] == 13
    assert max(found.values()) == 13  # lower it where you can


def test_no_estimator_has_a_tower_above_it():
    """Nothing but scikit-learn's mixins and one class of this package."""
    assert {len(shape.own_classes(each)) for each in shape.ESTIMATORS} == {1}


@pytest.mark.slow
def test_names_that_other_rooms_use_are_not_idle():
    idle = shape.idle_names()
    assert "execution/reading.py: Reading" not in idle
    assert "moments/moments.py: Moments" not in idle
