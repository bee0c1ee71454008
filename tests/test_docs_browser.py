"""The built site in a browser: narrow screens, pictures, formulas, and no other host.

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

HTML = Path(__file__).resolve().parents[1] / "docs" / "_build" / "html"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

LONGEST = 300.0  # seconds for all pages

LOOK = """<!doctype html><meta charset="utf-8"><body><script>
const pages = PAGES, found = {};
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style = "width:400px;height:800px;border:0";
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
  const wide = [];
  if (root.scrollWidth > 400) {
    for (const each of inside.body.querySelectorAll("article *")) {
      const right = each.getBoundingClientRect().right;
      if (right > 401 && each.closest("pre,.table-wrapper,.math,svg,math") === null)
        wide.push(each.tagName + " " + each.className + " " + Math.round(right));
    }
  }
  found[page] = {width: root.scrollWidth, wide: wide.slice(0, 4), lost, hosts, tex};
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
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
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser found on each page, 400 pixels wide."""
    if not (HTML / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    pages = sorted(
        page.relative_to(HTML).as_posix()
        for page in HTML.rglob("*.html")
        if "_static" not in page.parts and page.name not in {"search.html", "genindex.html"}
    )
    look = LOOK.replace("PAGES", json.dumps(pages)).encode()
    found: dict[str, Any] = {}
    ready = threading.Event()

    def done(answer: dict[str, Any]) -> None:
        found.update(answer)
        ready.set()

    handler = functools.partial(_Site, look=look, done=done)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/look.html"
        with browser(address, tmp_path_factory.mktemp("profile")):
            assert ready.wait(LONGEST), f"the browser looked at no more than {len(found)} pages"
        server.shutdown()
    assert set(found) == set(pages)
    return found


def test_no_page_scrolls_sideways_on_a_narrow_screen(seen: dict[str, Any]) -> None:
    wide = {page: (each["width"], each["wide"]) for page, each in seen.items()}
    assert {page: facts for page, facts in wide.items() if facts[0] > 400} == {}


def test_every_picture_loads_and_nothing_comes_from_another_host(seen: dict[str, Any]) -> None:
    assert {page: each["lost"] for page, each in seen.items() if each["lost"]} == {}
    assert {page: each["hosts"] for page, each in seen.items() if each["hosts"]} == {}


def test_no_formula_is_left_as_tex(seen: dict[str, Any]) -> None:
    assert {page: each["tex"] for page, each in seen.items() if each["tex"]} == {}
