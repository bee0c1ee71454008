"""Models and moments as Zarr v3 groups with a create-only log; no pickle anywhere."""

from rff_stream.store.audit import Verified
from rff_stream.store.entries import Batch, Entry
from rff_stream.store.model import StoredModel, load_model, save_model
from rff_stream.store.momentstore import MomentStore

__all__ = [
    "Batch",
    "Entry",
    "MomentStore",
    "StoredModel",
    "Verified",
    "load_model",
    "save_model",
]
