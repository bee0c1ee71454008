"""Synthetic data with a known answer."""

from rff_stream.demo.cube import Cube, write_cube

__all__ = ["Cube", "write_cube"]
