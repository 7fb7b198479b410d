"""The built site: links lead somewhere, nothing is fetched from elsewhere, no code is cut off on a screen or a phone."""

import functools
import html.parser
import http.server
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

import pytest

import lagrax
from lagrax import nn

pytest.importorskip("mkdocs", reason="the docs are built with mkdocs: pip install -e '.[docs]'")
pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (1280, 400)


class Page(html.parser.HTMLParser):
    """The links, anchors and fetched files of a page."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.links, self.anchors, self.fetched = [], {""}, []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.fetched += [given["src"]] if "src" in given else []
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.fetched.append(given.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_links_and_anchors(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            known = pages[target].anchors if target in pages else {""}
            if not target.exists() or (target in pages and urllib.parse.unquote(where.fragment) not in known):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_nothing_is_fetched_from_elsewhere(site, pages):
    remote = lambda url: bool(urllib.parse.urlsplit(url).netloc)
    elsewhere = [f"{path.name}: {url}" for path, page in pages.items() for url in filter(remote, page.fetched)]
    styles = [path.name for path in site.rglob("*.css") if re.search(r"(url\(|@import )['\"]?https?:", path.read_text())]
    assert not elsewhere and not styles


def test_formulas_are_drawn(site):
    """None is left as LaTeX."""
    left = [path.name for path in site.rglob("*.html") if 'class="arithmatex"' in path.read_text()]
    drawn = (site / "adjoints.html").read_text()
    assert not left and drawn.count("<math") > 50
    assert drawn.count("′</mo>") > 5 and "</mi><mo>′</mo></msup>" not in drawn  # see docs/assets/mathml.py


def test_signatures_of_the_reference(site):
    """The reference shows the arguments that a class has: those of modules are put together from their fields."""
    text = (site / "api.html").read_text()
    wrong, compared = [], 0
    for package in (lagrax, nn):
        for name, item in vars(package).items() if package is nn else ((n, getattr(lagrax, n)) for n in dir(lagrax)):
            heading = f'id="{package.__name__}.{name}"'
            if name.startswith("_") or not inspect.isclass(item) or heading not in text:
                continue
            after = text[text.index(heading) :]
            after = after[: after.index('<div class="doc doc-contents')]
            if not re.search("doc-signature", after):
                continue
            shown = re.sub(r"<[^>]+>|&#\d+;", "", after[after.index("doc-signature") :])
            try:
                arguments = [p for p in inspect.signature(item).parameters.values() if not p.name.startswith("_")]
            except ValueError:
                continue
            compared += 1
            missing = [p.name for p in arguments if not re.search(rf"\b{p.name}\b", shown)]
            wrong += [f"{name}: {missing}"] if missing else []
    assert not wrong and compared > 20


MEASURE = """<!doctype html><meta charset="utf-8"><iframe id="frame" style="height: 900px; border: 0"></iframe><script>
const frame = document.getElementById("frame");
const open = page => new Promise(done => { frame.onload = () => setTimeout(done, 30); frame.src = page; });
(async () => {
  const found = [];
  for (const width of WIDTHS) for (const page of PAGES) {
    frame.style.width = width + "px";
    await open(page);
    const root = frame.contentDocument.documentElement;
    for (const folded of root.querySelectorAll("details")) folded.open = true;
    const say = what => found.push(`${page} at ${width} px: ${what}`);
    if (root.scrollWidth > root.clientWidth) say(`the page is ${root.scrollWidth} px wide`);
    for (const box of root.querySelectorAll("pre, pre > code"))
      if (box.clientWidth && box.scrollWidth > box.clientWidth + 1) say(`code is cut off: ${box.textContent.slice(0, 60)}`);
    for (const image of root.querySelectorAll("article img")) {
      image.loading = "eager";
      try { await image.decode(); } catch { say(`no picture ${image.src}`); }
    }
  }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="layouts are measured by Chromium, which is not installed")
def test_nothing_is_cut_off(site, pages, tmp_path):
    found, measured = [], threading.Event()
    names = [str(path.relative_to(site)) for path in pages]
    (site / "measure.html").write_text(MEASURE.replace("PAGES", json.dumps(names)).replace("WIDTHS", str(list(WIDTHS))))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self):
            found.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            measured.set()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/measure.html"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={tmp_path}"]
    with subprocess.Popen(
        [CHROMIUM, *options, "--remote-debugging-port=0", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as browser:
        try:
            assert measured.wait(300), "Chromium did not come back"
        finally:
            browser.terminate()
            server.shutdown()
            server.server_close()
            (site / "measure.html").unlink()
    assert not found
