"""Models and moments as Zarr v3 groups with a create-only log; no pickle anywhere."""

from rff_stream.store.model import StoredModel, load_model, save_model

__all__ = ["StoredModel", "load_model", "save_model"]
