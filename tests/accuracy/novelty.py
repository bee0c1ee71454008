"""Novelty on ten public sets: AUROC and time beside scikit-learn's detectors, in one harness.

    python tests/accuracy/novelty.py [--sets skin,celeba] [--seeds 0,1,2] [--whitened]

ADBench's protocol: 70/30 stratified splits, an unsupervised fit on the contaminated train part,
AUROC on the test part; inputs z-scored by train statistics. OneClassSVM and
LocalOutlierFactor, whose cost grows faster than n, are trained on at most 10,000 rows. All with
default settings. Times are CPU seconds of fit and scores together.
``RFF_STREAM_DATA`` names the folder; see CONTRIBUTING.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

import rff_stream as rs

SETS = (
    "thyroid", "cardio", "mammography", "pendigits", "satimage-2",
    "mnist", "magic.gamma", "shuttle", "celeba", "skin",
)  # fmt: skip
MOST_ROWS = 10_000
"""Training rows of the detectors that cannot take more in reasonable time."""

Split = tuple[np.ndarray, np.ndarray, np.ndarray]
Detector = Callable[[int], Any]

OURS: dict[str, Detector] = {
    "NoveltyDetector": lambda seed: rs.NoveltyDetector(random_state=seed, progress=False)
}
WHITENED: dict[str, Detector] = {
    "whitened": lambda seed: rs.NoveltyDetector(whitened=True, random_state=seed, progress=False)
}
RIVALS: dict[str, Detector] = {
    "IsolationForest": lambda seed: IsolationForest(random_state=seed),
    "LocalOutlierFactor": lambda seed: LocalOutlierFactor(novelty=True),
    "OneClassSVM": lambda seed: OneClassSVM(),
}
LIMITED = ("LocalOutlierFactor", "OneClassSVM")


def folder() -> Path:
    """Where the data sets are."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    return Path(os.environ.get("RFF_STREAM_DATA", default))


def load(name: str, seed: int) -> Split:
    """Train X, test X and test y (1: anomaly), z-scored by the train part."""
    data = np.load(folder() / f"ad_{name}.npz")
    X, y = data["X"].astype(float), data["y"].astype(int)
    train, test, _, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    scale = train.std(axis=0)
    scale[scale == 0] = 1.0
    mean = train.mean(axis=0)
    return (train - mean) / scale, (test - mean) / scale, y_test


def run(detector: Any, split: Split, most_rows: int | None, seed: int) -> tuple[float, float]:
    """AUROC on the test part and CPU seconds of fit and scores."""
    train, test, y = split
    if most_rows is not None:
        train = train[np.random.default_rng(seed).permutation(len(train))[:most_rows]]
    started = time.process_time()
    scores = detector.fit(train).score_samples(test)
    return float(roc_auc_score(y, -scores)), time.process_time() - started


def table(sets: tuple[str, ...], seeds: tuple[int, ...], detectors: dict[str, Detector]) -> Any:
    """AUROC and seconds (sets, detectors, 2), means over seeds; detectors take turns."""
    found = np.zeros((len(sets), len(detectors), len(seeds), 2))
    for s, seed in enumerate(seeds):
        for i, name in enumerate(sets):
            split = load(name, seed)
            for j, (kind, make) in enumerate(detectors.items()):
                most = MOST_ROWS if kind in LIMITED else None
                found[i, j, s] = run(make(seed), split, most, seed)
    return found.mean(axis=2)


def markdown(sets: tuple[str, ...], detectors: dict[str, Detector], found: Any) -> str:
    """The table: AUROC (CPU seconds)."""
    lines = ["| set | " + " | ".join(detectors) + " |", "|---" * (len(detectors) + 1) + "|"]
    rows = [*zip(sets, found, strict=True), ("**mean** (total s)", summary(found))]
    for name, row in rows:
        cells = " | ".join(f"{auroc:.3f} ({seconds:.2f})" for auroc, seconds in row)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def summary(found: Any) -> Any:
    """Mean AUROC and total seconds of each detector."""
    return np.stack([found[..., 0].mean(axis=0), found[..., 1].sum(axis=0)], axis=-1)


def warm_up(detectors: dict[str, Detector]) -> None:
    """What is imported on first use is not timed."""
    X = np.random.default_rng(0).normal(size=(500, 2))
    for make in detectors.values():
        make(0).fit(X).score_samples(np.tile(X, (200, 1)))


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--whitened", action="store_true")
    chosen = parser.parse_args()
    detectors = OURS | (WHITENED if chosen.whitened else {}) | RIVALS
    warm_up(detectors)
    sets = tuple(chosen.sets.split(","))
    seeds = tuple(int(seed) for seed in chosen.seeds.split(","))
    print(markdown(sets, detectors, table(sets, seeds, detectors)))


if __name__ == "__main__":
    main()
