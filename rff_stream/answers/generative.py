"""A classifier from the density of each class: Bayes' rule, with no fit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from rff_stream._array import Array, Float64
from rff_stream.answers.density import Density, density
from rff_stream.features.base import FeatureMap
from rff_stream.kernels import Kernel
from rff_stream.moments import Moments


@dataclass(frozen=True, slots=True, eq=False)
class Generative:
    """p(c | x) ∝ p(c) p̂(x | c) for C classes.

    Parameters
    ----------
    labels : tuple
        Of the classes.
    log_prior : (C,) float64
        log of each class's share of the weight.
    """

    labels: tuple[Any, ...]
    log_prior: Float64
    densities: tuple[Density, ...]

    def log_posterior(self, Z: Array) -> Float64:
        """log p(c | x) (n, C) at feature rows Z (n, R).

        A density below its own error counts as that error: where all are, rows are too far
        from the data to be told apart and the posterior is near the prior.
        """
        likelihoods = [each.log_bound(Z) for each in self.densities]
        joint = np.stack(likelihoods, axis=1) + self.log_prior
        return np.asarray(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict(self, Z: Array) -> Array:
        """The most probable label (n,) of each row."""
        best: Array = self.log_posterior(Z).argmax(axis=1)
        return np.asarray(np.asarray(self.labels)[best])


def generative(groups: Mapping[Any, Moments], features: FeatureMap, kernel: Kernel) -> Generative:
    """Class-conditional densities from moments kept by class: ``collect(by=class, order=1)``.

    Parameters
    ----------
    groups : mapping of label to Moments
        At least two, of one map, each with rows.
    features, kernel
        As in :func:`~rff_stream.answers.density.density`.

    Notes
    -----
    R numbers a class and one pass in all: classes can be added, merged and forgotten. A
    discriminative fit (order 2) is more accurate; this one knows what it has never seen.
    """
    if len(groups) < 2:
        raise ValueError(f"{len(groups)} class was given but a classifier tells two or more apart.")
    weights = np.array([moments.weight for moments in groups.values()])
    densities = tuple(density(moments, features, kernel) for moments in groups.values())
    return Generative(tuple(groups), np.log(weights / weights.sum()), densities)
