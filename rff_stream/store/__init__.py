"""Models and moments as Zarr v3 groups with a create-only log; no pickle anywhere.

::

    zarr.json                    format, header, names and units of columns: written once
    map/<array> …                arrays that define the model, with names from its estimator
    row/<array>                  numbers of the augmented row: prior, origins, target scale
    answers/<sha256>/<array>     a solution, under a hash of all that it was solved from;
                                 for an updated model: a store inside, of the same form
    sums/<sha256>/               the sum of a block of batches, under a hash of them: a store inside
    data/<uuid>/                 one batch: moments, parts, runs, rows, weights, sample_…;
                                 of a checkpoint also the packed value of another statistic
    log/<20 digits>/zarr.json    an entry, which is a commit: what it adds or removes, and
                                 size and sha256 of every file that it lists

Every file but the root lies in a Zarr array (bytes and crc32c, uncompressed) or is its
metadata. Data without an entry are ignored. An entry holds the sha256 of the entry before it and of
itself; every 128th entry also holds the full state before it.
"""

from rff_stream.store.batch_reading import answer_name, is_answered
from rff_stream.store.batch_writing import Outdated
from rff_stream.store.checkpoint_store import Checkpoint, OtherPass, discard, token_in
from rff_stream.store.commit_log import Batch, Entry, Replaced
from rff_stream.store.model import (
    ModelPlace,
    StoredModel,
    keep_sums,
    load_model,
    save_answer,
    save_model,
)
from rff_stream.store.moment_store import MomentStore

__all__ = [
    "Batch",
    "Checkpoint",
    "Entry",
    "ModelPlace",
    "MomentStore",
    "OtherPass",
    "Outdated",
    "Replaced",
    "StoredModel",
    "answer_name",
    "discard",
    "is_answered",
    "keep_sums",
    "load_model",
    "save_answer",
    "save_model",
    "token_in",
]
