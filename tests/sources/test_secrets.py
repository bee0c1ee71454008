"""What stands before the @ of a URL, or after its question mark, is never shown."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream import text_formatting
from rff_stream.cli import output
from rff_stream.errors import DataError, RffStreamError
from rff_stream.sources import Selection, open_source
from rff_stream.sources.zarr_chunks import options_of
from rff_stream.store.model import ModelPlace


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:SECRET@bucket/M.zarr",
        "s3://KEY:SEC/RET@bucket/M.zarr",
        "s3://KEY:SEC%2FRET@bucket/M@v2.zarr",
        "https://SECRET@host/M.zarr",
        "https://host/M.zarr?token=SECRET",
        "https://host/M.zarr?a=1,SECRET;b",
        "https://user:SECRET@host/M.zarr?a=SECRET#x",
    ],
)
def test_secrets_of_a_url_are_not_shown(url: str) -> None:
    for secret in ("SECRET", "SEC", "RET", "KEY"):
        assert secret not in text_formatting.redact_url(url)
        assert secret not in output.redact_text(f"See {url}, or not.")
    assert text_formatting.redact_url("s3://bucket/M.zarr") == "s3://bucket/M.zarr"
    assert text_formatting.redact_url("s3://bucket/a@b.zarr") == "s3://bucket/a@b.zarr"


def test_a_hidden_password_is_hidden_wherever_it_stands() -> None:
    text_formatting.hide_url("s3://key:pass/word@bucket/x")
    assert output.redact_text("not allowed: pass/word") == "not allowed: …"
    output.forget()


@pytest.mark.parametrize(
    "url", ["memory://user:SECRET@host/none.zarr", "memory://none.zarr?token=SECRET"]
)
def test_what_zarr_says_of_a_store_is_shown_without_its_secrets(url: str) -> None:
    with pytest.raises(DataError, match="cannot be opened as Zarr: GroupNotFoundError") as caught:
        open_source(url, "y")
    assert "SECRET" not in str(caught.value)


def test_a_selection_shows_no_storage_options() -> None:
    assert "SECRET" not in repr(Selection("s3://bucket/a", storage_options={"secret": "SECRET"}))


def test_the_place_of_a_stored_model_shows_no_storage_options() -> None:
    assert "SECRET" not in repr(ModelPlace("s3://bucket/M.zarr", {"key": "SECRET"}, "a", 0, "b"))


OPTIONS = {"key": "AKIAOFSOMEONE", "client_kwargs": {"aws_session_token": "sup3rs3cr3tvalue"}}
WORDS = "denied: the key AKIAOFSOMEONE with sup3rs3cr3tvalue"


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file system that tells what it was given when it refuses, as services do."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(WORDS)

    for name in ("info", "ls", "exists", "isdir", "glob", "find", "_open", "cat_file", "open"):
        monkeypatch.setattr(memory, name, refuse)
    yield
    text_formatting.hidden.clear()


CALLS: dict[str, Any] = {
    "a Zarr store": lambda m: m.fit("memory://z.zarr", "y", storage_options=OPTIONS),
    "a table": lambda m: m.fit("memory://x.parquet", "y", storage_options=OPTIONS),
    "a CSV file": lambda m: m.fit("memory://x.csv", "y", storage_options=OPTIONS),
    "a pattern": lambda m: m.fit("memory://d/*.parquet", "y", storage_options=OPTIONS),
    "a model": lambda _: rs.load("memory://m.zarr", storage_options=OPTIONS),
    "a place": lambda m: m.fit(*ROWS).save("memory://m.zarr", storage_options=OPTIONS),
    "an update": lambda m: m.fit(*ROWS).update("memory://x.parquet", storage_options=OPTIONS),
    "a prediction": lambda m: m.fit(*ROWS).predict("memory://z.zarr", storage_options=OPTIONS),
}
ROWS = np.random.default_rng(0).normal(size=(40, 1)), np.arange(40.0)


@pytest.mark.usefixtures("denied")
@pytest.mark.parametrize("what", CALLS)
def test_what_a_file_system_says_is_shown_without_its_options(what: str) -> None:
    """Neither the message nor the traceback, which has the words of the cause."""
    model = rs.KernelRidge(n_components=8, length_scale=1.0, random_state=0, progress=False)
    with pytest.raises(RffStreamError) as caught:
        CALLS[what](model)
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "AKIAOFSOMEONE" not in str(seen) and "sup3rs3cr3tvalue" not in str(seen), seen
        seen = seen.__cause__ or seen.__context__


def test_options_that_a_file_system_refuses_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def refuse(url: str, **options: Any) -> Any:
        raise ValueError(f"no such option: {options}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    for url in ("memory://x.parquet", "memory://d/*.csv"):
        with pytest.raises(
            DataError, match=r"cannot be opened: ValueError: .* storage_options"
        ) as e:
            open_source(url, "y", storage_options=OPTIONS)
        assert "AKIAOFSOMEONE" not in str(e.value) + str(e.value.__cause__)
    text_formatting.hidden.clear()


def test_errors_of_reads_in_a_worker_hide_what_the_file_system_was_given() -> None:
    """A chunk's store and a table's file system know their options in any process."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    FsspecStore = pytest.importorskip("zarr.storage").FsspecStore
    store = FsspecStore.from_url("memory://z.zarr", storage_options={"secret": "sup3rs3cr3tvalue"})
    for each in (store, pickle.loads(pickle.dumps(store))):
        assert options_of(each)["secret"] == "sup3rs3cr3tvalue"
    assert memory(key="AKIAOFSOMEONE").storage_options == {"key": "AKIAOFSOMEONE"}
