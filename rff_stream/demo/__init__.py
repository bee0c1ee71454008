"""A cube with a known answer, fitted in bounded memory and scored against its noise ceiling."""

from __future__ import annotations

from rff_stream.demo.cube import Cube, write_cube
from rff_stream.demo.run import Figures, fit_and_score

__all__ = ["Cube", "Figures", "fit_and_score", "write_cube"]
