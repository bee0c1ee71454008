"""The built site in a browser: screens of three widths, pictures, formulas, search, no other host.

``make docs`` builds the site and runs this file, where Chromium or Chrome is installed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from places import ROOT

HTML = ROOT / "docs" / "_build" / "html"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

LONGEST = 300.0  # seconds for all pages

WIDTHS = (400, 800, 1280)  # pixels: a phone, a tablet, a screen

SEARCHES = {
    "length-scale": "howto/length-scales.html",
    "missing values": "howto/missing-values.html",
    "add a day": "howto/growing.html",
}
"""What is typed into the search of the site, and the page that is meant for it."""

LOOK = """<!doctype html><meta charset="utf-8"><body><script>
const pages = PAGES, widths = WIDTHS, searches = SEARCHES, found = {}, answers = {};
const pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));
async function search(words) {
  const frame = document.createElement("iframe");
  frame.style = "width:800px;height:800px;border:0";
  frame.src = "search.html?q=" + encodeURIComponent(words);
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const found = "#search-results ul.search li > a";
  const links = () => [...frame.contentDocument.querySelectorAll(found)];
  for (let before = -1, looks = 0; looks < 100; looks++) {
    await pause(0.3);
    const now = links().length;
    if (now && now == before) break;
    before = now;
  }
  answers[words] = links().map(each => new URL(each.href).pathname.slice(1));
  frame.remove();
}
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style = "width:" + widths[0] + "px;height:800px;border:0";
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const inside = frame.contentDocument, root = inside.documentElement;
  const images = [...inside.images];
  for (const each of images) each.loading = "eager";
  await Promise.all(images.map(each => each.decode().catch(() => {})));
  const lost = images.filter(each => !each.naturalWidth).map(each => each.src);
  const hosts = frame.contentWindow.performance.getEntriesByType("resource")
    .map(each => each.name)
    .filter(name => !/^data:/.test(name) && new URL(name).host != location.host);
  const prose = inside.createTreeWalker(inside.body, NodeFilter.SHOW_TEXT);
  const tex = [];
  while (prose.nextNode()) {
    const node = prose.currentNode;
    if (node.parentElement.closest("pre,code,script,style,textarea,math,.cell_output")) continue;
    if (/\\\\\\(|\\\\\\[|\\$\\$|\\\\frac/.test(node.data)) tex.push(node.data.trim().slice(0, 80));
  }
  const broken = [], word = inside.createRange();
  for (const title of inside.querySelectorAll("article h1")) {
    const text = title.firstChild;
    for (const each of (text && text.data || "").matchAll(/[^\\s-]+/g)) {
      word.setStart(text, each.index);
      word.setEnd(text, each.index + each[0].length);
      if (new Set([...word.getClientRects()].map(box => box.top)).size > 1) broken.push(each[0]);
    }
  }
  const wide = [], forms = {};
  for (const width of widths) {
    frame.style.width = width + "px";
    forms[width] = images.filter(each => /_images.map/.test(each.src) && each.offsetWidth).length;
    if (root.scrollWidth <= width) continue;
    for (const each of inside.body.querySelectorAll("article *")) {
      const right = each.getBoundingClientRect().right;
      if (right > width + 1 && each.closest("pre,.table-wrapper,.math,svg,math") === null)
        wide.push(width + ": " + each.tagName + " " + each.className + " " + Math.round(right));
    }
    if (!wide.length) wide.push(width + ": page " + root.scrollWidth);
  }
  found[page] = {wide: wide.slice(0, 4), lost, hosts, tex, broken, forms};
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  for (const words of searches) await search(words);
  await fetch("/found", {method: "POST", body: JSON.stringify({found, answers})});
})();
</script>"""

pytestmark = pytest.mark.docs


class _Site(SimpleHTTPRequestHandler):
    """The site, the page that looks at it, and a place for what it found."""

    def __init__(self, *args: Any, look: bytes, done: Any, **choices: Any) -> None:
        self.look, self.done = look, done
        super().__init__(*args, directory=str(HTML), **choices)

    def do_GET(self) -> None:
        if self.path != "/look.html":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.look)
        return None

    def do_POST(self) -> None:
        self.done(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def browser(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Chromium at an address, with a profile of its own; it is killed at the end."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium or Chrome is installed")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}", "--remote-debugging-port=0", address]
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        yield running
    finally:
        running.kill()
        running.wait(30)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser found on each page, and the answers of the site's search."""
    if not (HTML / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    pages = sorted(
        page.relative_to(HTML).as_posix()
        for page in HTML.rglob("*.html")
        if "_static" not in page.parts and page.name not in {"search.html", "genindex.html"}
    )
    look = LOOK
    for name, value in (("PAGES", pages), ("WIDTHS", WIDTHS), ("SEARCHES", [*SEARCHES])):
        look = look.replace(name, json.dumps(value))
    found: dict[str, Any] = {}
    ready = threading.Event()

    def done(answer: dict[str, Any]) -> None:
        found.update(answer)
        ready.set()

    handler = functools.partial(_Site, look=look.encode(), done=done)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/look.html"
        with browser(address, tmp_path_factory.mktemp("profile")):
            assert ready.wait(LONGEST), "the browser did not look at all pages in time"
        server.shutdown()
    assert set(found["found"]) == set(pages)
    return found


@pytest.fixture(scope="module")
def seen(looked: dict[str, Any]) -> dict[str, Any]:
    """What the browser found, by page."""
    found: dict[str, Any] = looked["found"]
    return found


def test_no_page_scrolls_sideways_on_screens_of_three_widths(seen: dict[str, Any]) -> None:
    """Code and tables that are wider than the page scroll by themselves."""
    assert {page: each["wide"] for page, each in seen.items() if each["wide"]} == {}


def test_no_word_of_a_title_is_broken_on_a_phone(seen: dict[str, Any]) -> None:
    """As "GaussianProces-sRegressor" was."""
    assert {page: each["broken"] for page, each in seen.items() if each["broken"]} == {}


def test_one_form_of_a_picture_is_seen_on_each_screen(seen: dict[str, Any]) -> None:
    for page in ("index.html", "gallery.html"):
        assert seen[page]["forms"] == {str(width): 1 for width in WIDTHS}


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_finds_the_page_that_is_meant_first(looked: dict[str, Any], words: str) -> None:
    assert looked["answers"][words][:1] == [SEARCHES[words]]


def test_every_picture_loads_and_nothing_comes_from_another_host(seen: dict[str, Any]) -> None:
    assert {page: each["lost"] for page, each in seen.items() if each["lost"]} == {}
    assert {page: each["hosts"] for page, each in seen.items() if each["hosts"]} == {}


def test_no_formula_is_left_as_tex(seen: dict[str, Any]) -> None:
    assert {page: each["tex"] for page, each in seen.items() if each["tex"]} == {}
