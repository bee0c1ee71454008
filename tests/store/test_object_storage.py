"""Data and models in a bucket whose server is slow, busy, or never well: moto behind a proxy."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import rff_stream as rs
from rff_stream import remote_calls
from rff_stream.errors import DataError, ModelError
from rff_stream.sources import zarr_chunks
from toys import columns_to_zarr

pytestmark = pytest.mark.optional

N = 20_000
BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Proxy(ThreadingHTTPServer):
    """Passes reads on; answers some of chunks with 503, all of them late."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.there = host, port
        self.every = 0  # so many reads of chunks are one 503; 1 is all of them
        self.late = 0.0  # seconds
        self.reads = self.refused = 0
        self.count = threading.Lock()

    @property
    def beyond(self) -> dict[str, Any]:
        """Storage options of the server itself, for writing."""
        host, port = self.there
        return {"key": "KEY", "secret": "SECRET", "endpoint_url": f"http://{host}:{port}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def busy(self, path: str) -> bool:
        if "/c/" not in path:
            return False
        with self.count:
            self.reads += 1
            refused = self.every > 0 and self.reads % self.every == 0
            self.refused += refused
        time.sleep(self.late)
        return refused


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        if self.server.busy(self.path):
            self.reply(503, {"Content-Type": "application/xml"}, BUSY)
            return
        beyond = http.client.HTTPConnection(*self.server.there, timeout=30)
        beyond.request(self.command, self.path, headers=dict(self.headers))
        found = beyond.getresponse()
        headers = {k: v for k, v in found.getheaders() if k.lower() != "transfer-encoding"}
        self.reply(found.status, headers, found.read())
        beyond.close()

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = answer


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    found = Proxy(*server.get_host_and_port())
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()
    server.stop()


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    a, b = np.random.default_rng(0).normal(size=(2, N))
    return {"a": a, "b": b, "t": np.sin(a) + b}


@pytest.fixture(scope="module")
def bucket(proxy: Proxy, columns: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(URL, storage options) of a Zarr group."""
    import s3fs

    s3fs.S3FileSystem(**proxy.beyond).mkdir("bucket")
    url = "s3://bucket/table.zarr"
    group = zarr.open_group(url, mode="w", zarr_format=3, storage_options=proxy.beyond)
    for name, column in columns.items():
        group.create_array(name, data=column, chunks=(1000,), dimension_names=["row"])
    return url, proxy.beyond | {"endpoint_url": proxy.url}


def fitted(X: Any, options: dict[str, Any] | None = None) -> rs.KernelRidge:
    model = rs.KernelRidge(n_components=32, alpha=1.0, random_state=0, progress=False)
    return model.fit(X, "t", inputs=["a", "b"], storage_options=options)


def test_a_bucket_that_is_slow_and_busy_gives_the_same_bits(
    proxy: Proxy, bucket: tuple[str, dict[str, Any]], columns: dict[str, Any], tmp_path: Path
) -> None:
    url, options = bucket
    columns_to_zarr(tmp_path / "table.zarr", columns, 1000, dimension_names=["row"])
    expected = fitted(tmp_path / "table.zarr")

    proxy.every, proxy.late = 10, 0.02
    try:
        model = fitted(url, options)
    finally:
        proxy.every, proxy.late = 0, 0.0
    assert proxy.refused >= 5
    assert model.coef_.tobytes() == expected.coef_.tobytes()

    model.save("s3://bucket/model.zarr", storage_options=proxy.beyond)
    again = rs.load("s3://bucket/model.zarr", storage_options=options)
    assert again.coef_.tobytes() == expected.coef_.tobytes()


def test_a_bucket_that_is_never_well_is_an_error_that_names_the_chunk(
    proxy: Proxy, bucket: tuple[str, dict[str, Any]]
) -> None:
    url, options = bucket
    options = options | {"config_kwargs": {"retries": {"max_attempts": 1}}}  # of botocore
    proxy.every = 1
    try:
        with pytest.raises(DataError, match=r"bucket/table.zarr.*chunk c/\d+ of array") as caught:
            fitted(url, options)
    finally:
        proxy.every = 0
    assert "SECRET" not in str(caught.value)


def run(*words: str, options: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rff_stream", *words]
    return subprocess.run(
        [*command, "--storage-options", json.dumps(options)], capture_output=True, text=True
    )


@pytest.mark.parametrize("command", ["fit", "inspect"])
def test_a_closed_port_is_one_line(command: str) -> None:
    """The reads that were begun beside the first that failed complain no more."""
    pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"key": "KEY", "secret": "SECRET", "endpoint_url": f"http://127.0.0.1:{port}"}
    words = ["fit", "s3://bucket/t.zarr", "--target", "t", "--n-components", "32"]
    began = time.monotonic()
    done = run(*(words if command == "fit" else ["inspect", "s3://bucket/m.zarr"]), options=options)
    assert done.returncode == (3 if command == "fit" else 4)
    errors = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert len(errors) == 1 and "Could not connect to the endpoint" in errors[0]
    assert "SECRET" not in done.stderr
    assert time.monotonic() - began < 120


def test_an_address_that_never_answers_ends_within_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setattr(zarr_chunks, "PATIENCE", zarr_chunks.RetryPolicy(metadata=1.0))
    monkeypatch.setattr(remote_calls, "SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"key": "KEY", "secret": "SECRET", "endpoint_url": address}
        began = time.monotonic()
        with pytest.raises(DataError, match="cannot be reached: no answer within 1 s"):
            fitted("s3://bucket/t.zarr", options)
        with pytest.raises(ModelError, match="cannot be read: no answer within 1 s"):
            rs.load("s3://bucket/m.zarr", storage_options=options)
        assert time.monotonic() - began < 30


def test_what_a_bucket_does_not_let_go_is_said(
    proxy: Proxy, bucket: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = rs.KernelRidge(n_components=8, length_scale=1.0, alpha=1.0, progress=False)
    model.partial_fit(x, x[:, 0], batch="a")
    model.save("s3://bucket/denied.zarr", moments=True, storage_options=proxy.beyond)
    store = rs.MomentStore.open("s3://bucket/denied.zarr", storage_options=proxy.beyond)
    store.append("b", rs.collect(model.features_, x, x[:, 0], row=store.row, progress=False))
    store.forget("b")
    system = store._log.files.system

    def denied(*given: Any, **options: Any) -> None:
        raise PermissionError("Access Denied")

    with monkeypatch.context() as patch:
        patch.setattr(system, "rm", denied)
        with pytest.raises(ModelError, match="is still there after it was removed, one of 1"):
            store.gc(older_than=-1)
    assert len(store.gc(older_than=-1)) == 1
    assert store.ids() == ["fit"]


def test_the_shell_saves_a_model_where_its_options_say(
    proxy: Proxy, bucket: tuple[str, dict[str, Any]], columns: dict[str, Any], tmp_path: Path
) -> None:
    """Data here, model there: before, it went to the provider's own address."""
    here = zarr.open_group(tmp_path / "table.zarr", mode="w", zarr_format=3)
    for name, column in columns.items():
        here.create_array(name, data=column[:500], chunks=(250,), dimension_names=["row"])
    place = "s3://bucket/from-the-shell.zarr"
    words = ["fit", str(tmp_path / "table.zarr"), "--target", "t", "--n-components", "32"]
    done = run(*words, "--model", place, options=proxy.beyond)
    assert done.returncode == 0, done.stderr
    assert rs.load(place, storage_options=proxy.beyond).n_rows_ == 500
