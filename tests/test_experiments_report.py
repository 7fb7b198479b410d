"""The report: well formed, self-contained, and the same in a real browser."""

import re
import shutil
import struct
import subprocess
from html.parser import HTMLParser

import pytest

from lagrax import cli
from lagrax.runner import Claim, Outcome, Table, UserError, _folder, _report, figures, range_of

NASTY = "<script>alert(1)</script> & \"quotes\" 'single'"
VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects text, images and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words, self.addresses = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def finished(out, name, title, seconds=1.5, preset="smoke"):
    """The folder of a finished run, with one figure and text that HTML must not swallow."""
    config = {"experiment": name, "title": title, "about": NASTY, "preset": preset, "seeds": 2, "adjoint": "discrete"}
    config |= {"solver": "tsit5", "tolerance": 1e-6, "numbers": {"points": 3}, "versions": {"jax": "0"}, "machine": "M"}
    folder = _folder.create(out, name, config)
    figure, axes = figures.new()
    axes[0, 0].plot([0, 1], color=figures.COLOURS["NDDE"], label="NDDE")
    figures.legend(figure, axes)
    claims = [Claim("It holds.", NASTY, True), Claim("It fails.", "2 > 1", False), Claim("It depends.", "?", None)]
    entry = figures.save(figure, folder, "plot", NASTY)
    outcome = Outcome({"error": 0.5}, claims, [entry], [Table("Numbers", ("a", "b"), [("1", NASTY)])], ["A note."])
    _folder.write_outcome(folder, outcome, seconds, False)
    return folder


@pytest.fixture
def runs(tmp_path):
    for name in ("crossing", "spiral"):
        _report.write([folder := finished(tmp_path / "runs", name, f"On {name}")], folder / "report.html")
    return tmp_path / "runs"


def parse(file):
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    assert not page.open
    return page


def test_one_run(runs):
    (folder,) = _folder.runs(runs / "crossing")
    page = parse(folder / "report.html")
    text = " ".join(page.words)
    assert "script" not in page.tags and page.tags.count("img") == 1
    for part in ("On crossing", NASTY, "✓ reproduced", "✗ not reproduced", "– not comparable", "A note.", "jax 0", "1.5 s"):
        assert part in text
    local = {"plot.png", "plot.pdf", "config.json", "metrics.json"}
    assert local == {address for address in page.addresses if not address.startswith("data:image/png;base64,")}
    assert page.tags.count("details") == 1 and "lagrax reproduce crossing --preset smoke" in text
    assert "is too small for a verdict. lagrax reproduce crossing gives one." in re.sub(r"\s+", " ", text)
    assert not re.search(r"https?://|url\(|@import", (folder / "report.html").read_text())


def test_several_runs(runs, capsys):
    assert cli.main(["report", str(runs)]) == 0
    assert capsys.readouterr().out.strip() == str(runs / "report.html")
    page = parse(runs / "report.html")
    assert page.tags.count("section") == 2 and "#spiral" in page.addresses
    (folder,) = _folder.runs(runs / "spiral")
    assert f"spiral/{folder.name}/report.html" in page.addresses and f"spiral/{folder.name}/plot.png" in page.addresses
    assert cli.main(["report", str(runs / "spiral"), "--to", str(runs / "other.html")]) == 0
    assert parse(runs / "other.html").tags.count("section") == 1


def test_the_largest_preset_is_shown_not_the_newest_run(runs):
    """Others, among them one that is not finished and one that failed, are linked."""
    best = finished(runs, "spiral", "On spiral", preset="paper")
    finished(runs, "spiral", "On spiral", preset="default")
    _folder.write_json(_folder.create(runs, "spiral", {"experiment": "spiral"}) / "failure.json", {"error": "it diverged"})
    assert cli.main(["report", str(runs)]) == 0
    text = (runs / "report.html").read_text()
    assert f"spiral/{best.name}/plot.png" in text and text.count("plot.png") == 4  # crossing's and this one's
    assert "3 other runs" in text and "it diverged" in text and "not finished" in text


def test_wide_figures_are_stacked_for_phones(tmp_path):
    for columns in (1, 4):
        figure, axes = figures.new(1, columns)
        axes[0, -1].plot([1, 2])
        _report.pages.image(tmp_path, figures.save(figure, tmp_path, f"wide-{columns}", "caption"), tmp_path / "report.html")
    assert not (tmp_path / "wide-1-narrow.png").exists()
    size = lambda file: struct.unpack(">II", (tmp_path / file).read_bytes()[16:24])
    (width, height), (narrow, tall) = size("wide-4.png"), size("wide-4-narrow.png")
    assert abs(4 * narrow - width) <= 4 and abs(tall - 4 * height) <= 4


def test_a_missing_figure_or_outcome_is_said(runs, capsys):
    (folder,) = _folder.runs(runs / "crossing")
    before = (folder / "report.html").read_text()
    (folder / "plot.png").unlink()
    assert cli.main(["report", str(folder)]) == 1
    assert "plot.png cannot be read" in capsys.readouterr().err
    (folder / "outcome.json").write_text("{}")
    with pytest.raises(UserError, match="not what lagrax writes"):
        _folder.read_outcome(folder)
    assert (folder / "report.html").read_text() == before


def test_figures_are_the_same_bytes_each_time(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        figure, axes = figures.new(1, 2)
        axes[0, 0].plot([1, 2, 3])
        figures.save(figure, folder, "plot", "caption")
    for suffix in ("png", "pdf"):
        assert (tmp_path / "a" / f"plot.{suffix}").read_bytes() == (tmp_path / "b" / f"plot.{suffix}").read_bytes()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("size", ["1200,1600", "400,1600"], ids=["desk", "phone"])
def test_a_browser_shows_it(runs, tmp_path, size):
    (folder,) = _folder.runs(runs / "crossing")
    shot = tmp_path / "shot.png"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    page = (folder / "report.html").as_uri()
    done = subprocess.run(
        [*command, f"--window-size={size}", f"--screenshot={shot}", page], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0 and shot.stat().st_size > 20_000
    text = subprocess.run([*command, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=False).stdout
    assert "✗ not reproduced" in text and "<script>" not in text


def test_a_narrow_range_is_not_shown_as_none():
    cell = lambda low, high: range_of({"median": 0.2011, "min": low, "max": high}).replace("\u00a0", " ")
    assert cell(0.14, 0.26) == "0.201 (0.14 – 0.26)"
    assert cell(0.2002, 0.2019) == "0.201 (0.2 – 0.202)"
