"""What stands before the @ of a URL, or after its question mark, is never shown."""

from __future__ import annotations

import pytest

from rff_stream import text_formatting
from rff_stream.cli import output
from rff_stream.errors import DataError
from rff_stream.sources import Selection, open_source
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
    output.hide_url("s3://key:pass/word@bucket/x")
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
