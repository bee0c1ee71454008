"""Candidates for classes are compared by their calibrated probabilities."""

from __future__ import annotations

import functools

import numpy as np

from rff_stream._array import Float64
from rff_stream.answers.calibration import calibrate, probabilities
from rff_stream.length_scales.search import Search


def compare_probabilities(search: Search, n_rows: int, *, scales: bool) -> None:
    """Compare the candidates of a search, whose targets are one-hot, by probabilities.

    Where targets are what levels leave of them: by scores times a factor. Of so many rows of data;
    length-scales times a factor compete, too, where ``scales`` may be any.
    """
    y = search.rows.y
    spread = np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    search.n_rows, search.compares_scales = n_rows, scales
    if np.isin(y, (0, 1)).all():
        of = functools.partial(probability_errors, spread=spread, origin=y.mean(axis=0))
        search.errors_of = of
    else:
        search.errors_of = scaled_errors


def scaled_errors(errors: Float64, y: Float64) -> Float64:
    """Errors (m, T) of scores times the factor that makes their squares least, as calibration may.

    ``errors`` are those of the scores of left-out rows with targets y.
    """
    scores = y - errors
    squares = np.maximum((scores**2).sum(axis=0), np.finfo(float).tiny)
    return np.asarray(y - np.maximum((y * scores).sum(axis=0) / squares, 0.0) * scores)


def probability_errors(errors: Float64, y: Float64, spread: Float64, origin: Float64) -> Float64:
    """Errors (m, T) of calibrated probabilities, from those of the scores of left-out rows.

    Scores of least squares are pressed towards the shares of the classes, the more the smoother
    the kernel. Calibration undoes that, so candidates are compared as they will be used. Errors and
    one-hot classes y, less their ``origin`` (T,), are in units of the ``spread`` (T,) of each
    class; the result is in units of that of all.
    """
    truth, missed = y * spread + origin, errors * spread
    if not np.isfinite(missed).all():
        return errors
    scores, two = truth - missed, y.shape[1] == 1
    codes = (truth[:, 0] > 0.5).astype(int) if two else truth.argmax(axis=1)
    found = probabilities(calibrate(scores, codes, np.ones(len(codes)))(scores))
    wrong = found[:, 1:] - truth if two else found - truth
    return np.asarray(wrong / np.sqrt(np.mean(spread**2)))
