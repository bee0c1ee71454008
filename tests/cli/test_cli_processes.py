"""The command line as a process: signals, pipes, encodings, and a scheduler with workers."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

import rff_stream as rs
from places import ROOT
from rff_stream.cli import main
from rff_stream.cli.program import make_readable
from toys import columns_to_zarr

HEAVY = {"dask", "distributed", "numpy", "pandas", "scipy", "sklearn", "xarray", "zarr"}
WORDS = ["--inputs", "a,b", "--target", "t"]
GIVEN = ["--length-scale", "1", "--alpha", "0.1"]
SMALL = [*WORDS, "--n-components", "16"]
MIDDLE = [*WORDS, *GIVEN, "--n-components", "256"]
LONG = [*WORDS, "--n-components", "1000"]  # about 4 CPU seconds for 300,000 rows
OFTEN = {"DASK_RFF_STREAM__CHECKPOINT_SECONDS": "0"}


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "rff_stream", *map(str, words)]


def run(*words: Any, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*words), capture_output=True, env=os.environ | environment, timeout=120
    )


def start(*words: Any, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def here(*words: Any) -> Result:
    """The same in this process, which has imported what each new process imports for seconds."""
    return CliRunner().invoke(main, [str(word) for word in words])


def wait_until_working(process: subprocess.Popen[str], checkpoint: Path) -> None:
    """Until the first segment is in the checkpoint."""
    deadline = time.monotonic() + 60
    while not (checkpoint / "log" / f"{1:020}" / "zarr.json").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.005)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300,000 rows: a fit of them can be met while it runs."""
    return table(tmp_path_factory.mktemp("data") / "table.zarr", 300_000)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 rows."""
    return table(tmp_path_factory.mktemp("few") / "table.zarr", 2_000)


def table(path: Path, n: int) -> Path:
    """Plain arrays: a, b -> t."""
    a, b = np.random.default_rng(0).standard_normal((2, n), dtype=np.float32)
    return columns_to_zarr(path, {"a": a, "b": b, "t": np.sin(a) + b}, 50_000, compressors=None)


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rff_stream.cli import main\n"
        "try: main(['fit', '--help'])\n"
        f"except SystemExit as end: print(end.code, *sorted({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The names of kernels come from their classes, which are NumPy and SciPy.
    assert set(done.stdout.splitlines()[-1].split()) <= {"0", "numpy", "scipy"}


def test_an_interrupt_while_the_command_is_imported_is_quiet() -> None:
    """Seconds on a busy machine; it ended in a traceback of imports."""
    code = (
        "import sys; from rff_stream.__main__ import run\n"
        "class Stop:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'rff_stream.cli.fit': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop); run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_an_interrupt_stops_a_fit_and_leaves_a_checkpoint_at_most(
    data: Path, tmp_path: Path
) -> None:
    """SIGTERM takes the same way; the next test sends it."""
    kept = tmp_path / "m.zarr.checkpoint"
    process = start("fit", data, *LONG, "--model", tmp_path / "m.zarr", **OFTEN)
    wait_until_working(process, kept)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("rff-stream: stopped by ")
    assert {path.name for path in tmp_path.iterdir()} <= {kept.name}


@pytest.mark.slow
def test_a_fit_that_was_terminated_goes_on_with_the_same_bits(data: Path, tmp_path: Path) -> None:
    model, kept = tmp_path / "m.zarr", tmp_path / "m.zarr.checkpoint"
    words = ["fit", data, *MIDDLE, "--threads", "1", "--model", model]
    process = start(*words, **OFTEN)
    wait_until_working(process, kept)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")
    assert len(err.splitlines()) == 1 and "stopped by SIGTERM" in err
    assert not model.exists()
    assert 0 < rs.MomentStore.open(kept).verify().rows < 300_000
    done = here(*words)
    assert (done.exit_code, list(tmp_path.iterdir())) == (0, [model]), done.stderr
    assert "resuming from a checkpoint of" in done.stderr
    assert here(*words[:-1], tmp_path / "n.zarr").exit_code == 0
    a, b = rs.load(model), rs.load(tmp_path / "n.zarr")
    assert np.array_equal(a.moments_.sums, b.moments_.sums) and np.array_equal(a.coef_, b.coef_)


@pytest.mark.slow
def test_output_has_letters_that_the_encoding_knows(few: Path) -> None:
    """A page of Cyrillic letters has no ²; the next test has other pages."""
    words = ["fit", few, *SMALL, *GIVEN, "--holdout", "0.1", "--where", "b>1"]
    done = run(*words, PYTHONIOENCODING="cp1251", LC_ALL="C")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)  # it is not kept
    assert "R2 0.9" in done.stdout.decode("cp1251")


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("cp1252", "R² 3 × 2"),
        ("cp1251", "R2 3 x 2"),
        ("iso8859-2", "R2 3 × 2"),
        ("koi8-r", "R² 3 x 2"),
    ],
)
def test_a_letter_that_an_encoding_lacks_is_a_plainer_one(
    encoding: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, other = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", other)
    make_readable()
    sys.stdout.write("R² 3 × 2")
    sys.stdout.flush()
    assert stream.buffer.getvalue().decode(encoding) == printed  # type: ignore[attr-defined]


def test_json_is_alone_on_a_piped_stdout(few: Path) -> None:
    done = here("fit", few, *SMALL, "--json")
    assert done.stdout.isascii() and json.loads(done.stdout)["n_rows"] == 2_000
    assert "no --model was given" in done.stderr


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_gets_no_traceback() -> None:
    process = start("fit", "--help")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) in (0, 1)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


# --------------------------------------------------------------------------------- cluster


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A scheduler and a worker with two threads, as processes on loopback."""
    dashboard = ["--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1"]
    dask = [sys.executable, "-m", "distributed.cli."]
    first = subprocess.Popen(
        [*dask[:2], dask[2] + "dask_scheduler", "--port", "0", *dashboard],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stderr is not None
    line = next(line for line in first.stderr if "Scheduler at:" in line)
    address = line.split()[-1]
    worker = subprocess.Popen(
        [*dask[:2], dask[2] + "dask_worker", address, "--nthreads", "2", "--no-nanny", *dashboard],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield address
    finally:
        for process in (worker, first):
            process.terminate()
            process.wait(30)
        first.stderr.close()


@pytest.mark.cluster
def test_a_cluster_gives_the_same_model_and_is_left_idle(
    data: Path, tmp_path: Path, scheduler: str
) -> None:
    local, there, out = (tmp_path / name for name in ("here.zarr", "there.zarr", "out.zarr"))
    assert run("fit", data, *SMALL, "--model", local).returncode == 0
    done = run("fit", data, *SMALL, "--model", there, "--scheduler", scheduler)
    assert (done.returncode, done.stderr) == (0, b"")
    np.testing.assert_array_equal(rs.load(local).coef_, rs.load(there).coef_)

    done = run("predict", there, data, "--output", out, "--scheduler", scheduler)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = rs.load(local).predict(str(data)).compute()
    np.testing.assert_array_equal(zarr.open_array(out)[:], expected)

    long = tmp_path / "long.zarr"
    process = start("fit", data, *LONG, "--model", long, "--scheduler", scheduler)
    until_busy(scheduler, busy=True)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert len(err.splitlines()) == 1
    until_busy(scheduler, busy=False)


def until_busy(address: str, *, busy: bool) -> None:
    """Wait until the workers have something, or nothing, to do."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        deadline = time.monotonic() + 60
        while any(client.processing().values()) != busy:
            assert time.monotonic() < deadline
            time.sleep(0.05)


COMPLETIONS = {
    "bash": """
eval "$(_RFF_STREAM_COMPLETE=bash_source rff-stream)"
COMP_WORDS=(rff-stream pre); COMP_CWORD=1
_rff_stream_completion rff-stream pre rff-stream; echo "${COMPREPLY[@]}"
""",
    "zsh": """
autoload -Uz compinit; compinit -u -D
eval "$(_RFF_STREAM_COMPLETE=zsh_source rff-stream)"
_describe() { print -r -- "${(P)3}" }
words=(rff-stream pre); CURRENT=2; $_comps[rff-stream]
""",
    "fish": """
_RFF_STREAM_COMPLETE=fish_source rff-stream | source
complete -C"rff-stream pre"
""",
}
"""What the page Install says to put into a start-up file, and a press of the Tab key."""


@pytest.mark.slow
@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_shell_completes_commands(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} is installed")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert COMPLETIONS[shell].split("rff-stream")[0].strip().splitlines()[-1] in page
    own = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{own}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [program, "-c", COMPLETIONS[shell]], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip().startswith("predict"), done.stderr
