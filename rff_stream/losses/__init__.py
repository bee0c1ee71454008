"""Losses: what a miss costs, its slope and curvature; the penalised sum, and its minimum."""
