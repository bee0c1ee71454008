"""What values show of themselves: short text, whole HTML, and nothing computed for it."""

from __future__ import annotations

import typing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.penalty_selection import cross_validate
from rff_stream.notebook_display import numbers, table

VOID = {"br", "meta", "img", "hr", "link", "input"}


class Balanced(HTMLParser):
    """Reads HTML and fails where a tag is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Closed as it opens."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> str:
    """The words of a page whose tags balance, and that has no script."""
    parser = Balanced()
    parser.feed(page.replace("<wbr>", ""))  # a place where a word may break
    parser.close()
    assert parser.open == []
    return " ".join(parser.words)


@pytest.fixture(scope="module")
def model() -> rs.GaussianProcessRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    made = rs.GaussianProcessRegressor(n_components=32, random_state=0, progress=False)
    return made.fit(x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(300))


def test_an_estimator_shows_what_was_asked_and_found(model: Any) -> None:
    shown = read(model._repr_html_())
    for word in ("n_components=32", "300", "d = 2: x0, x1", "R = 32", "order 2"):
        assert word in shown
    assert model.features_.fingerprint[:16] in shown
    assert "enough" in shown or "more components" in shown
    bundle = model._repr_mimebundle_(include=None)["text/html"]
    assert read(bundle) == shown
    for word in ("importance", "intervals", "95 %: ±", "parameters", "missing_rows"):
        assert word in shown
    assert "# df/R" in repr(model)
    assert "not fitted" in read(rs.KernelRidge()._repr_html_())
    assert "defaults" in read(rs.KernelRidge()._repr_html_())


def test_every_kind_of_estimator_shows_itself(model: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(200, 1))
    density = rs.KernelDensity(n_components=512, random_state=0).fit(x)
    assert numbers(density.bandwidth_) in read(density._repr_html_())
    detector = rs.NoveltyDetector(n_components=8).fit(x)
    assert "order 1" in read(detector._repr_html_())


def test_the_types_of_parameters_are_known(model: Any) -> None:
    hints = typing.get_type_hints(type(model).__init__)
    assert {*model.get_params(deep=False)} <= {*hints}


def test_moments_show_shapes_bytes_and_fingerprints(model: Any) -> None:
    moments = model.moments_
    assert repr(moments) == (
        f"<Moments of order 2: 300 rows, R=32, T=1, {dict_of(moments)['bytes']}, "
        f"map {moments.row.map_fingerprint[:8]}>"
    )
    shown = read(moments._repr_html_())
    own = moments.row.fingerprint[:16]
    for word in ("32 + 1 + 1 = 34", "(595,) float64", own, "300 of at most"):
        assert word in shown
    first = rs.collect(model.features_, np.zeros((40, 2)), order=1)
    assert "32 sub-sums" in read(first._repr_html_())


def dict_of(moments: Any) -> dict[str, str]:
    from rff_stream.notebook_display import moments_card

    return dict(moments_card(moments).rows)


def test_a_store_shows_its_batches(model: Any, tmp_path: Path) -> None:
    store = rs.MomentStore.create(tmp_path / "m.zarr", model.moments_.row)
    assert "0 batches" in read(store._repr_html_())
    store.append("<2024-01>", model.moments_)
    shown = read(store._repr_html_())
    for word in ("1 batches", "300 rows", "R=32, T=1, order 2", "<2024-01>", store.head[:16]):
        assert word in shown
    assert repr(store).startswith("<MomentStore: ")
    assert "300 rows" in repr(store)


def test_a_plan_is_one_line_and_a_table(model: Any) -> None:
    assert "\n" not in repr(model.plan_)
    assert "R = 32" in repr(model.plan_)
    assert "segments" in read(model.plan_._repr_html_())


def test_a_selection_marks_what_it_chose(model: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 2))
    folds = rs.collect(model.features_, x, x[:, 0], folds=3)
    found = cross_validate(folds, alphas=np.array([1e-3, 1.0, 1e3]), sizes=[16, 32])
    page = found._repr_html_()
    assert page.count("<b>") == 3  # title, best of each size, cell of the table
    for word in ("alpha", "R'=16", "R'=32", "±", found.why):
        assert word in read(page)


def test_html_is_escaped_and_long_things_are_counted() -> None:
    assert "&lt;a&gt;" in table(["<a>"], [["<a>", "<a>"]])
    assert numbers(np.arange(9.0)) == "0, 1, 2, 3, 4, 5, … (9)"
    assert numbers(None) == ""
