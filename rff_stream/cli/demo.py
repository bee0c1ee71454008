"""The command demo."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path

import click

from rff_stream.cli import arguments
from rff_stream.cli.arguments import Machine, computing
from rff_stream.cli.output import Line, show

CUBE, MODEL, PAGE = "ocean.zarr", "model.zarr", "report.html"


@click.command(epilog="Example: rff-stream demo --days 30")
@click.option("--output", metavar="DIR", help="Folder for the results; default a new one in /tmp.")
@click.option(
    "--days", type=click.IntRange(min=2), default=365, show_default=True,
    help="Length of the cube: about 7,250 rows over the sea for each day.",
)  # fmt: skip
@click.option(
    "--n-components", type=click.IntRange(min=2), default=1024, show_default=True, metavar="R",
    help="Random features.",
)  # fmt: skip
@click.option(
    "--memory", type=arguments.memory, default="1GiB", show_default=True, metavar="BYTES",
    help="Memory of this process.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Threads; default all CPUs."
)
@arguments.seed
@arguments.overwrite
@arguments.as_json
def demo(
    output: str | None,
    days: int,
    n_components: int,
    memory: int,
    threads: int | None,
    seed: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a Zarr cube, fit it in bounded memory, score it, write a report.

    The cube is like an ocean, time x lat x lon with NaN for land: a bulk formula gives the latent
    heat flux from wind, humidity, air and sea temperature, plus noise of known variance. So the
    best possible R² is known, and is compared with that of the fit on held-out rows. The folder
    is kept: cube, model, report.txt, report.json and report.html (with matplotlib).
    """
    from rff_stream.cli.demo_figures import fit_and_score

    folder = prepare_folder(output, overwrite)
    made = make_cube(folder / CUBE, days, seed)
    if not as_json:
        show({}, [made], as_json=False)
    with computing(Machine(memory, threads, None)):
        found = fit_and_score(
            folder / CUBE,
            folder / MODEL,
            n_components=n_components,
            memory=memory,
            seed=seed,
            page=page_of(folder),
        )
    found.write(folder)
    places = {"folder": folder, "data": folder / CUBE, "model": folder / MODEL}
    reports = sorted(path.name for path in folder.glob("report.*"))
    kept = [("kept in", f"{folder}: {', '.join([CUBE, MODEL, *reports])}")]
    if page_of(folder) is None:
        kept.append(("page", f"for {PAGE}: pip install 'rff_stream[plot]'"))
    show({"command": "demo", **found.facts(), **places}, [*found.lines(), *kept], as_json)
    if found.failure:
        raise click.ClickException(found.failure)


def page_of(folder: Path) -> Path | None:
    """Where the page goes; None without matplotlib, which it draws with."""
    return folder / PAGE if importlib.util.find_spec("matplotlib") else None


def prepare_folder(output: str | None, overwrite: bool) -> Path:
    """The folder to write in, without an older demonstration."""
    if output is None:
        return Path(tempfile.mkdtemp(prefix="rff-stream-demo-"))
    folder = Path(output).absolute()
    from rff_stream.store.atomic import OutputKind, check_target, remove_whole
    from rff_stream.store.batch_writing import MODEL as STORED_MODEL

    folder.mkdir(parents=True, exist_ok=True)
    cube = OutputKind("no cube that rff-stream demo made", is_cube)
    kinds = {folder / CUBE: cube, folder / MODEL: STORED_MODEL}
    for path, kind in kinds.items():
        check_target(str(path), overwrite, kind)
    for path in kinds:
        if path.exists():
            remove_whole(str(path))
    return folder


def is_cube(path: str) -> bool:
    """Whether a Zarr store has the title of the cube."""
    from rff_stream.demo.cube import TITLE

    root = Path(path) / "zarr.json"
    return root.is_file() and TITLE.encode() in root.read_bytes()


def make_cube(path: Path, days: int, seed: int) -> Line:
    """Write the cube; a line about it."""
    from rff_stream.demo.cube import Cube, write_cube
    from rff_stream.progress import Progress

    cube, started = Cube(n_days=days, seed=seed), time.monotonic()
    cells, done = cube.n_lat * cube.n_lon, 0
    with Progress("writing", days * cells) as progress:
        for day in write_cube(cube, path):
            progress.advance((day - done) * cells)
            done = day
    shape = f"time {days} x lat {cube.n_lat} x lon {cube.n_lon}"
    return "cube", (
        f"{shape}, {cube.n_valid:,} rows over the sea, written in "
        f"{time.monotonic() - started:.1f} s"
    )
