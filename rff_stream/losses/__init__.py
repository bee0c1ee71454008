"""Losses: what a miss costs, its slope and curvature; the penalised sum, and its minimum."""

from rff_stream.losses.regression import (
    EpsilonInsensitive,
    Huber,
    NegativeBinomial,
    Poisson,
    Quantile,
    StudentT,
)

__all__ = ["EpsilonInsensitive", "Huber", "NegativeBinomial", "Poisson", "Quantile", "StudentT"]
