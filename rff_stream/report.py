"""A report on a model as one HTML page without network or script.

Settings, training data, errors on test data, intervals, cost, drift and provenance.
"""

from __future__ import annotations

import base64
import html
import io
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from rff_stream import __version__, plot
from rff_stream._array import Float64
from rff_stream.answers.learning_curves import group_errors
from rff_stream.answers.maximum_mean_discrepancy import drift
from rff_stream.answers.penalty_selection import ridge_path
from rff_stream.errors import ModelError
from rff_stream.execution import Reading
from rff_stream.model import gradients
from rff_stream.model.facts import enough_features, maps_of, model_card, units_of_scales
from rff_stream.model.input_rows import open_later
from rff_stream.moments import Moments
from rff_stream.notebook_display import Card, numbers, table
from rff_stream.plot.canvas import (
    BLANKS,
    COLOURS,
    mean_of,
    on_paper,
    sample_of,
    std_of,
    target_label,
)
from rff_stream.sources import Selection
from rff_stream.sources.rows import EPOCH
from rff_stream.statistics.scores import ClassScores, Residuals
from rff_stream.store import MomentStore
from rff_stream.text_formatting import format_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["Assessment", "assess", "report", "write_report"]


DRAWN_ROWS = 2000  # dots of a panel; the numbers are of all rows


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """What a model did on rows that are told from those it was fitted on."""

    place: str  # where the rows are, in words
    residuals: Residuals | None  # sums over all of the rows; None for a model that is no regression
    scores: ClassScores | None  # the same of a classifier
    x: Float64  # (m, d): some of the rows, spread over the data
    y: Float64  # (m, T)
    w: Float64  # (m,)
    seconds: float  # of the pass; 0 where it was made before
    held_out: bool = False  # whether a condition says that the fit left these rows out


def assess(
    model: Any,
    data: Any,
    *,
    place: str = "the data given",
    target: Any = None,
    weights: Any = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
    residuals: Residuals | None = None,
) -> Assessment:
    """Score a model on data in one streamed pass, and read some rows to draw.

    Parameters
    ----------
    model : fitted estimator
    data : as in fit
    place : str
        What the report calls the data.
    target, weights, dim, where, storage_options
        As in ``model.residuals``.
    residuals : Residuals, optional
        Where they are known already, the rows are not scored again.

    Returns
    -------
    Assessment
    """
    started, targets = time.monotonic(), model.columns_.targets
    held_out = any(getattr(each, "part", None) == "test" for each in where)
    choices: dict[str, Any] = {"dim": dim, "where": where, "storage_options": storage_options}
    if hasattr(model, "scores"):
        scores = model.scores(data, target, weights, **choices)
        nothing = np.empty((0, len(model.columns_.inputs)))
        seconds = time.monotonic() - started
        return Assessment(place, None, scores, nothing, nothing, np.empty(0), seconds, held_out)
    seconds = 0.0
    if targets and residuals is None:
        residuals = model.residuals(data, target, weights, **choices)
        seconds = time.monotonic() - started
    y = (list(targets) if target is None else target) if targets else None
    rows = Selection(data, y, weights, None, dim, where, None, storage_options)
    kind: Any = "numbers" if targets else "none"
    source = open_later(model, model.columns_, rows, kind, scored=True).source
    pilot = Reading(source, progress=False).pilot()
    step = max(1, -(-len(pilot.x) // DRAWN_ROWS))
    x, y_drawn, w = (np.asarray(each[::step], np.float64) for each in (pilot.x, pilot.y, pilot.w))
    return Assessment(place, residuals, None, x, y_drawn, w, seconds, held_out)


WIDTH, HEIGHT = 6.4, 4.2
"""Inches of a picture: 640 px wide on the page, and readable at half of that."""

CANDIDATES_OF_HEIGHT = 12
"""Candidates that a picture of this height has room for."""

COLOURS_OF_PAGE = {
    "ink": ("#1a1a1a", "#d6d6d6"),
    "soft": ("#444444", "#a9adb1"),
    "paper": ("#ffffff", "#131416"),
    "blank": BLANKS,
    "rule": (COLOURS[0], COLOURS[5]),
}
"""Name of a colour in CSS -> on light and on dark paper, as the reader's system asks."""

COLOURS_OF_DRAWING = {"ink": "#010203", "paper": "#fdfeff", "blank": BLANKS[0].lower()}
"""What stands for these colours while a picture is drawn: no plot has such colours of its own."""


def colours_of_page() -> str:
    """The colours as CSS, for the page and for each picture, which is a document of its own."""
    light, dark = (
        " ".join(f"--{name}: {pair[form]};" for name, pair in COLOURS_OF_PAGE.items())
        for form in (0, 1)
    )
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }}\n{dark}"


STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; line-height: 1.45;
  font-family: system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; margin: .2rem 0; }
h2 { font-size: 1.15rem; margin: 1.6rem 0 .4rem; border-bottom: 2px solid var(--rule); }
.lead { font-size: 1.05rem; max-width: 60rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.row > * { flex: 1 1 min(28rem, 100%); min-width: 0; max-width: 100%; }
img { width: 100%; max-width: 640px; height: auto; }
figure { margin: 0; }
figcaption { font-size: .85rem; color: var(--soft); }
.wide { overflow-x: auto; }
.row > .wide:has(> p:only-child) { flex-basis: 100%; }
summary { cursor: pointer; color: var(--rule); }
table { font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; min-width: 5rem; }
.wide :is(td, th) { white-space: normal !important; }
@media (min-width: 40rem) { .wide tr:has(td + td) td { white-space: nowrap !important; } }
@media (max-width: 40rem) {
  .wide { font-size: .8rem; }
  .wide :is(td, th) { padding: .15em .3em !important; }
  .wide :is(td, th):first-child { overflow-wrap: anywhere; min-width: 7rem; }
}
code { font-size: .85rem; overflow-wrap: anywhere; }
""".strip()


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and blocks of HTML, side by side where there is room."""

    title: str
    blocks: tuple[str, ...]  # HTML
    details: str = ""  # HTML that is shown when a reader opens it: hashes, versions, history
    words: str = ""  # HTML above the blocks

    def html(self) -> str:
        """The heading and its blocks."""
        inner = "".join(f'<div class="wide">{block}</div>' for block in self.blocks)
        more = f"<details><summary>Details</summary>{self.details}</details>" * bool(self.details)
        row = f'<div class="row">{inner}</div>' * bool(inner)
        return f"<section><h2>{html.escape(self.title)}</h2>{self.words}{row}{more}</section>"


GENERATOR = '<meta name="generator" content="rff_stream">'
"""Says whose page it is."""


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    shown = [each for each in sections if each.blocks or each.details]
    body = "".join(section.html() for section in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'{GENERATOR}<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{colours_of_page()}\n{STYLE}</style></head>"
        f'<body><h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>'
        f"{body}</body></html>\n"
    )


def paragraph(*sentences: str) -> str:
    """Sentences as a paragraph; empty ones are left out."""
    text = " ".join(sentence for sentence in sentences if sentence)
    return f"<p>{html.escape(text)}</p>" if text else ""


def picture(draw: Callable[[Axes], Any], caption: str, height: float = HEIGHT) -> str:
    """What a function draws, as an SVG inside the page, in its colours."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    written, stands = io.StringIO(), COLOURS_OF_DRAWING
    with mpl.rc_context(on_paper(stands["paper"], stands["ink"])):
        figure = Figure(figsize=(WIDTH, height), layout="constrained", dpi=100)
        draw(figure.subplots())
        figure.savefig(written, format="svg", metadata={"Date": None})
    drawn = written.getvalue()
    for name, colour in stands.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    drawn = drawn.replace("<defs>", f"<style>{colours_of_page()}</style><defs>", 1)
    source = base64.b64encode(drawn.encode()).decode()
    words = html.escape(caption)
    return (
        f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{source}">'
        f"<figcaption>{words}</figcaption></figure>"
    )


PATH_FEATURES = 2048
"""R up to which the path of α is drawn: a decomposition of 1.5 CPU s."""

MOST_GROUPS = 60  # lines of a table; the newest
MOST_INPUTS, MOST_DIRECTIONS = 12, 4  # the same: those that matter most
COVERAGE = 0.95  # of the intervals that the page tests, the default of predict_interval


def lead(model: Any, test: Assessment | None) -> str:
    """One sentence: what this is, and how good."""
    columns = model.columns_
    what = ", ".join(columns.targets) or "the rows themselves"
    words = f"{type(model).__name__} of {what} from {len(columns.inputs)} inputs"
    words += f", fitted on {model.n_rows_:,} rows with {model.features_.n_components:,} features"
    if test is not None and test.scores is not None:
        accuracy = f"{test.scores.accuracy():.1%}"
        return f"{words}: {accuracy} right of {test.scores.n:,} rows of {test.place}."
    if test is None or test.residuals is None:
        return words + "."
    r2 = numbers(test.residuals.r2())
    return words + f": R² {r2} on {test.residuals.n:,} rows of {test.place}."


def fit_section(model: Any) -> Section:
    """What was fitted on what."""
    columns, scale = model.columns_, getattr(model, "length_scale_", None)
    d = len(columns.inputs)
    scales = [""] * d if scale is None else np.broadcast_to(np.asarray(scale, float), (d,))
    x, _, _ = sample_of(model)
    units = columns.units or ("",) * d
    rows = []
    for i, name in enumerate(columns.inputs):
        range_ = "" if not len(x) else _range(x[:, i], units[i])
        each = scales[i] if isinstance(scales[i], str) else numbers(scales[i])
        apart = units_of_scales(model)[i]
        words = f"{each} {apart}" if apart != units[i] else each
        rows.append([name, units[i], range_, words])
    head = ["input", "unit", "range in the row sample", "length-scale"]
    card = model_card(model)
    shown = tuple(row for row in card.rows if row[0] != "map")  # a hash: under provenance
    blocks = (replace(card, rows=shown).html(), table(head, rows))
    return Section("What was fitted, and on what", blocks)


def _range(values: Float64, unit: str) -> str:
    """Least and largest value; days since 1970 as dates."""
    if unit != EPOCH:
        return f"{values.min():.4g} … {values.max():.4g}"
    ends = (np.array([values.min(), values.max()]) * 86400).astype("datetime64[s]")
    return " … ".join(np.datetime_as_string(ends, unit="D"))


def chosen(model: Any) -> Section:
    """What competed before the read, what was taken, and what a simple rule would give."""
    found, title = getattr(model, "choice_", None), "How this model was chosen"
    if found is None or len(found.names) < 2:
        return Section(title, ())
    caption = "Errors at rows of the pilot that each candidate had not seen, and CPU seconds."
    words = f"Taken: {' and '.join(found.taken_names)}."
    not_begun = getattr(found, "not_begun", ())
    left = (
        f"Within search_seconds={found.limit:.3g} were not begun: {'; '.join(not_begun)}."
        if not_begun
        else ""
    )
    height = HEIGHT * max(1.0, len(found.names) / CANDIDATES_OF_HEIGHT)
    blocks = (picture(partial(plot.choice, found), caption, height),)
    return Section(title, blocks, words=paragraph(words, left))


def good(model: Any, test: Assessment | None) -> Section:
    """How good it is, on other rows where there are some."""
    if hasattr(model, "classes_"):
        return _classes(test)
    if not model.columns_.targets:
        return Section("What it sees", tuple(_cloud(model)))
    blocks = []
    if test is not None and test.residuals is not None:
        found, units = test.residuals, model.columns_.units[len(model.columns_.inputs) :]
        columns = zip(model.columns_.targets, found.r2(), found.rmse(), units, strict=False)
        rows = [[name, f"{r2:.5f}", f"{rmse:.4g} {unit}"] for name, r2, rmse, unit in columns]
        words = f"{found.n:,} rows of {test.place}, all of them read once."
        scores = table(["target", "R²", "RMSE"], rows) + paragraph(words, _doubt(test))
        blocks.append(scores + _beside(model, test))
        draw = partial(plot.observed, model, X=test.x, y=test.y)
        blocks.append(picture(draw, "Some of these rows, spread over the data."))
        blocks += _errors(model, test)
    elif len(sample_of(model)[0]):
        caption = "Rows of the fit itself. Give --data to show rows that were not in the fit."
        blocks.append(picture(partial(plot.observed, model), caption))
    else:
        blocks.append(
            paragraph(
                "Not known: no data were given (--data), and the model was saved without moments, "
                "so it holds no rows."
            )
        )
    return Section("How good it is", (*blocks, *_shape(model)))


def depends(model: Any) -> Section:
    """Which inputs the function depends on, and which combinations of them."""
    title = "What it depends on"
    try:
        found = gradients.shares_of_inputs(model)
    except (ModelError, ValueError):  # no function of rows, no rows, or no slopes
        return Section(title, ())
    if not any(found.values()):
        return Section(title, (paragraph("Nothing: the fitted function is constant."),))
    shares = sorted(found.items(), key=lambda pair: -pair[1])
    inputs = [[name, f"{share:.1%}"] for name, share in shares[:MOST_INPUTS]]
    quantities = gradients.with_slopes(model.columns_.inputs)
    levels = ""
    if len(found) > len(quantities):
        levels = (
            " Of a column of levels, and of the mark of missing values, it is the variance of the "
            "function where they are drawn again."
        )
    words = paragraph(
        "Shares of the squared slope of the fitted function over its row sample, inputs over "
        f"their standard deviations.{levels}"
    )
    if not quantities:
        return Section(title, (table(["input", "share"], inputs),), words=words)
    directions = gradients.of_sample(model).directions()
    leading = enumerate(directions.shares[:MOST_DIRECTIONS].tolist())
    combined = [
        [directions.combination(k), f"{share:.1%}"] for k, share in leading if share >= 0.01
    ]
    tables = table(["input", "share"], inputs) + table(["combination", "share"], combined)
    caption = "Directions along which the fitted function changes, and the inputs in each."
    return Section(title, (tables, picture(partial(plot.metric, directions), caption)), words=words)


def sure(model: Any, test: Assessment | None) -> Section:
    """How sure it is, and whether that is so."""
    if not _regresses(model):
        return Section("How sure it is", ())
    enough = f"Effective degrees of freedom: {enough_features(model)}."
    if not hasattr(model, "predict_interval"):
        words = (
            "KernelRidge gives no standard deviations; GaussianProcessRegressor does, from the "
            "same moments and with the same parameters."
        )
        return Section("How sure it is", _beside_words(paragraph(enough, words), _path(model)))
    noise = f"Noise has a standard deviation of {numbers(np.sqrt(model.noise_variance_))}."
    one_map = not any(hasattr(each, "n_cells") for each in maps_of(model))
    far = "Far from the data the standard deviation of f is too small, unless R is larger."
    words = far if one_map else ""
    covered = "" if test is None else _coverage(model, test)
    drawn = [] if test is None else _coverage_table(model, test)
    pictures = [*drawn, *_path(model)]
    return Section(
        "How sure it is", _beside_words(paragraph(enough, noise, covered, words), pictures)
    )


def _beside_words(words: str, pictures: Sequence[str]) -> tuple[str, ...]:
    """Words above several pictures; beside a single one, which would leave half a row empty."""
    return (f"<div>{words}</div>" if len(pictures) == 1 else words, *pictures)


def cost_section(model: Any, test: Assessment | None, notes: Sequence[tuple[str, str]]) -> Section:
    """What it took, and what it takes."""
    r, d = model.features_.n_components, len(model.columns_.inputs)
    targets = max(len(model.columns_.targets), 1)
    one = f"{2 * r * (d + targets):,} flops and {r:,} cosines"
    rows = [
        *notes,
        ("a predicted row", one if hasattr(model, "coef_") else ""),
        ("a fitted row", f"{r**2:,} flops" if targets and hasattr(model, "coef_") else ""),
        ("test rows read in", "" if test is None or not test.seconds else f"{test.seconds:.1f} s"),
    ]
    blocks = [Card("Cost", tuple(rows)).html()]
    planned = getattr(model, "plan_", None)
    if planned is not None:
        memory = picture(partial(plot.plan_memory, planned), "Planned memory.", 2.6)
        time = picture(partial(plot.plan_time, planned), "Planned time.", 2.6)
        blocks.append(memory + time)
    return Section("What it costs", tuple(blocks))


def drift_section(model: Any, groups: Mapping[Any, Moments]) -> Section:
    """Batches or labels beside each other, where a store keeps several."""
    if len(groups) < 2:
        return Section("Drift", ())
    some = dict(list(groups.items())[-MOST_GROUPS:])
    if not _regresses(model) or gradients.has_log_link(model):  # moments do not tell its residuals
        return Section("Drift", _distances(some))
    if not hasattr(model, "coef_"):
        return Section("Drift", (_errors_of_samples(model, some),))
    errors = {k: group_errors(part, model.coef_, model.intercept_) for k, part in some.items()}
    rows = [[str(k), f"{e.n:,}", numbers(e.bias), numbers(e.rmse)] for k, e in errors.items()]
    caption = "Residuals of each batch under this model, from its moments: no row was read again."
    drawn = picture(partial(plot.residuals, model, some), caption)
    return Section("Drift", (drawn, table(["batch", "rows", "mean residual", "RMSE"], rows)))


def provenance(model: Any, place: str | None, store: MomentStore | None) -> Section:
    """Where it comes from: enough to tell two models apart, and to make it again."""
    given = json.dumps(model.get_params(deep=False), default=repr, ensure_ascii=False)
    rows = [
        ("model", place or "in memory"),
        ("map", f"sha256 {model.features_.fingerprint}"),
        ("parameters", given),
        ("written by", f"rff_stream {__version__}, Python {platform.python_version()}"),
    ]
    if store is not None:
        rows += [("moments", f"sha256 {store.row.fingerprint}"), ("head", f"sha256 {store.head}")]
    card = Card("Provenance", tuple(rows)).html()
    if store is None:
        return Section("Where it comes from", (), card)
    commits = [
        [str(e.number), e.op, e.id or "", e.time[:19], "" if e.rows is None else f"{e.rows:,}"]
        for e in store.history()[-MOST_GROUPS:]
    ]
    history = table(["commit", "what", "batch", "time", "rows"], commits)
    return Section("Where it comes from", (), card + history)


def store_of(place: str | None) -> MomentStore | None:
    """The moments of a saved model; None where it was saved without."""
    if place is None:
        return None
    try:
        return MomentStore.open(place)
    except ModelError:
        return None


def groups_of(store: MomentStore | None) -> dict[str, Moments]:
    """Moments by batch; by label where there is one batch of several labels."""
    if store is None:
        return {}
    ids = [batch.id for batch in sorted(store.batches(), key=lambda batch: batch.number)]
    if len(ids) > 1:
        return {
            each: store.total(lambda batch, each=each: batch.id == each)
            for each in ids[-MOST_GROUPS:]
        }
    return {str(label): part for label, part in store.groups().items()}


def _regresses(model: Any) -> bool:
    """Whether it predicts numbers, so that residuals mean something."""
    return bool(model.columns_.targets) and not hasattr(model, "classes_")


def _doubt(test: Assessment) -> str:
    """What a score is worth whose rows the fit may have read."""
    words = "If these rows were in the fit, its errors look too small: fit and report with"
    return "" if test.held_out else f"{words} --holdout, or report on other data."


def _classes(test: Assessment | None) -> Section:
    """Accuracy by class, and whether probabilities mean what they say."""
    title = "How good it is"
    if test is None or test.scores is None:
        return Section(title, (paragraph("Not known: no data were given (--data)."),))
    found, recall, area = test.scores, test.scores.recall(), test.scores.auroc()
    rows = [[str(k), f"{recall.get(k, np.nan):.4f}", f"{area[k]:.4f}"] for k in found.labels]
    words = f"{found.accuracy():.2%} right of {found.n:,} rows of {test.place}, read once."
    drawn = (
        picture(partial(plot.confusion, found), "Predicted classes for the rows of each class."),
        picture(
            partial(plot.calibration, found),
            "Predicted probabilities, and the share of correct predictions.",
        ),
    )
    scores = table(["class", "recall", "AUROC"], rows) + paragraph(words, _doubt(test))
    return Section(title, drawn, words=scores)


def _distances(groups: Mapping[Any, Moments]) -> tuple[str, ...]:
    """Each batch against all others, by its mean feature vector."""
    if not all(isinstance(each, Moments) for each in groups.values()):
        return (paragraph("Not known: the mean of one map tells it, and this model has several."),)
    try:
        found = drift(groups, progress=False)
    except ValueError as error:
        return (paragraph(f"Not known. {error}"),)
    rows = [
        [str(k), f"{each.n_a:,}", f"{each.distance:.4f}", f"{each.p_value:.4f}"]
        for k, each in found.items()
    ]
    drawn = picture(partial(plot.drift, found), "Each batch compared with all others.")
    return drawn, table(["batch", "rows", "distance", "p"], rows)


def _errors_of_samples(model: Any, groups: Mapping[Any, Any]) -> str:
    """Residuals of the sampled rows of each batch, which the model has seen."""
    lines, d = [], len(model.columns_.inputs)
    predict = gradients.function_of(model)
    for name, part in groups.items():
        rows = part.sample.rows
        if len(rows):
            errors, w = rows[:, d] - predict(rows[:, :d])[:, 0], rows[:, -1]
            bias, square = (float(np.average(each, weights=w)) for each in (errors, errors**2))
            lines.append([str(name), f"{len(rows):,}", numbers(bias), numbers(np.sqrt(square))])
    caption = "Residuals of sampled rows of each batch, which this model has seen; first target."
    return table(["batch", "rows", "mean residual", "RMSE"], lines) + paragraph(caption)


def _beside(model: Any, test: Assessment) -> str:
    """RMSE (first target) of this model, of a linear trend and of the mean on the same rows."""
    if not len(test.x):
        return ""
    words = f"{len(test.x):,} of these rows. The linear trend is fitted to rows of the fit."
    return table(["prediction", "RMSE"], _baselines(model, test)) + paragraph(words)


def _errors(model: Any, test: Assessment) -> list[str]:
    """Errors on some of the rows: as a histogram, and on a map."""
    if not len(test.x):
        return []
    errors, label = (test.y - mean_of(model, test.x))[:, 0], f"residual of {target_label(model)}"
    drawn = [picture(partial(plot.histogram, errors, label=label), "Errors on these rows.")]
    place = _places(model.columns_.inputs)
    if place is None and len(model.columns_.inputs) > 2:  # else the fit itself stands there
        predicted, words = mean_of(model, test.x)[:, 0], f"predicted {target_label(model)}"
        along = partial(plot.error_curve, predicted, errors, label=words, unit=label)
        drawn.append(picture(along, "Errors against predictions."))
    if place is not None:
        east, north = test.x[:, place[0]], test.x[:, place[1]]
        draw = partial(plot.error_map, east, north, errors, label=label, coasts=False)
        drawn.append(picture(draw, "Where the errors are."))
    return drawn


def _baselines(model: Any, test: Assessment) -> list[list[str]]:
    x, y, w = sample_of(model)
    rows: list[tuple[str, Float64]] = [("this model", (test.y - mean_of(model, test.x))[:, 0])]
    if len(x) > x.shape[1] + 1:
        root, centre = np.sqrt(w)[:, None], x.mean(axis=0)
        ones = np.ones((len(x), 1))
        trend = np.linalg.lstsq(root * np.hstack([ones, x - centre]), root * y, rcond=None)[0]
        rows.append(("linear trend", (test.y - trend[0] - (test.x - centre) @ trend[1:])[:, 0]))
        rows.append(("mean", test.y[:, 0] - np.average(y[:, 0], weights=w)))
    return [[name, numbers(np.sqrt(np.average(e**2, weights=test.w)))] for name, e in rows]


def _places(names: Sequence[str]) -> tuple[int, int] | None:
    """Which inputs are longitude and latitude; None where there are none of that name."""
    lower = [name.lower() for name in names]
    found = [
        next((lower.index(name) for name in known if name in lower), None)
        for known in (("lon", "longitude"), ("lat", "latitude"))
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _coverage_table(model: Any, test: Assessment) -> list[str]:
    """The share of rows inside their intervals, at every stated share."""
    std = std_of(model, test.x, noise=True)
    if std is None or not len(test.x):
        return []
    errors = (test.y - mean_of(model, test.x))[:, 0]
    caption = "Share of rows inside their intervals."
    return [picture(partial(plot.coverage, errors, std[:, 0]), caption)]


def _shape(model: Any) -> list[str]:
    """The fit itself where it has one or two inputs and a row sample tells their range."""
    d = len(model.columns_.inputs)
    if d > 2 or not len(sample_of(model)[0]):
        return []
    draw = plot.curve if d == 1 else plot.surface
    return [picture(partial(draw, model), "The fit over the range of the row sample.")]


def _cloud(model: Any) -> list[str]:
    """Density or scores where they can be drawn."""
    d = len(model.columns_.inputs)
    if not len(sample_of(model)[0]):
        return [paragraph("The model was saved without moments, so it holds no rows to draw.")]
    if hasattr(model, "density_") and d <= 2:
        return [picture(partial(plot.density, model), "Density, with rows of the fit.")]
    if hasattr(model, "explained_variance_ratio_"):
        return [picture(partial(plot.components, model), "Variance in feature space.")]
    if hasattr(model, "offset_") and d == 2:
        return [picture(partial(plot.novelty, model), "Scores, with rows of the fit.")]
    return [paragraph(f"With {d} inputs there is no plot of it; use score_samples.")]


def _path(model: Any) -> list[str]:
    moments = getattr(model, "moments_", None)
    if not isinstance(moments, Moments) or moments.order != 2:
        return []
    if not hasattr(model, "fit_intercept"):  # a loss of its own, whose path moments do not tell
        return []
    if moments.row.n_features > PATH_FEATURES:
        return []
    found = ridge_path(moments, fit_intercept=model.fit_intercept)
    caption = "The fit at every penalty, from the same read."
    return [picture(partial(plot.path, found), caption)]


def _coverage(model: Any, test: Assessment) -> str:
    """Share of the rows inside their intervals, in words."""
    std = std_of(model, test.x, noise=True)
    if std is None or not len(test.x):
        return ""
    missed = np.abs(mean_of(model, test.x) - test.y) > ndtri(0.5 + COVERAGE / 2) * std
    share = ", ".join(f"{1 - each:.1%}" for each in np.average(missed, axis=0, weights=test.w))
    return (
        f"Of {len(test.x):,} rows of {test.place}, {share} lie inside the "
        f"{format_share(COVERAGE)} interval of a new y."
    )


def report(
    model: Any,
    *,
    test: Assessment | None = None,
    place: str | PathLike[str] | None = None,
    notes: Sequence[tuple[str, str]] = (),
) -> str:
    """One self-contained HTML page about a fitted model: no network, no script.

    Parameters
    ----------
    model : fitted estimator
    test : Assessment, optional
        From :func:`assess`: what the model did on other rows.
    place : path, optional
        Where the model was saved: its batches give drift, its log provenance.
    notes : sequence of (name, text)
        More lines under cost.

    Returns
    -------
    str
    """
    where = None if place is None else fspath(place)
    store = store_of(where)
    return page(
        f"{type(model).__name__}: {', '.join(model.columns_.targets) or 'rows'}",
        lead(model, test),
        [
            fit_section(model),
            chosen(model),
            good(model, test),
            depends(model),
            sure(model, test),
            cost_section(model, test, notes),
            drift_section(model, groups_of(store)),
            provenance(model, where, store),
        ],
    )


def write_report(path: str | PathLike[str], model: Any, **choices: Any) -> None:
    """Write :func:`report` to a file."""
    Path(path).write_text(report(model, **choices), encoding="utf-8")
