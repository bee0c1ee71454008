"""The README is short, and its commands use what its own snippet makes."""

from __future__ import annotations

from places import ROOT


def test_the_readme_is_short_and_its_lines_are() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 112
    assert max(map(len, lines)) < 200


def test_the_readme_names_what_its_own_snippet_makes() -> None:
    """The shell commands stand after the snippet that writes their data, and use its names."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    joined = text.replace("\\\n", "").splitlines()
    lines = [line.split() for line in joined if line.startswith("rff-stream ")]
    assert [words[1] for words in lines] == ["plan", "fit", "predict"]
    assert text.index('to_zarr("cube.zarr"') < text.index("rff-stream plan")
    for words in lines[:2]:
        assert words[2] == "cube.zarr"
        assert words[words.index("--target") + 1] == "sea_surface_temperature"
    assert "--std" in lines[2] and lines[2][2] == lines[1][lines[1].index("--model") + 1]


def test_the_readme_says_nothing_of_a_release() -> None:
    """Nothing is published: an installation is from a clone, and no badge or index is named."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install rff" not in text
    assert "pypi.org" not in text.lower() and "conda" not in text and "readthedocs" not in text
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before, _, after = project.partition("[project.urls]")
    assert "not published yet" in before.splitlines()[-1]
    urls = after.split("[", 1)[0]
    assert urls.count("rff-stream/rff_stream") == 3
