"""Synthetic data with a known answer."""
