"""The report in a real browser: no complaints, nothing from the network, and room enough on a phone."""

import re
import shutil
import subprocess
from typing import NamedTuple

import numpy as np
import pytest

from gaussify.plotting import Page, figure_file, image_html
from gaussify.tables import FitOptions, fit_table, report_html

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --allow-file-access-from-files --virtual-time-budget=3000 "
    "--enable-logging=stderr --dump-dom"
).split()
PROBE = """<!DOCTYPE html><body><iframe src="{}" style="width: 390px; height: 800px; border: 0"></iframe><script>
window.onload = () => {{
  const inside = document.querySelector("iframe").contentDocument;
  const images = [...inside.images];
  const inches = image => image.src.startsWith("data:image/png") ? image.naturalWidth / 160 : image.naturalWidth / 96;
  const size = parseFloat(inside.defaultView.getComputedStyle(inside.body).fontSize);
  document.body.innerText = "wide " + inside.documentElement.scrollWidth + " loaded " +
    images.filter(image => image.complete && image.naturalWidth > 0).length + " of " + images.length + " font " + size +
    " points " + Math.min(...images.map(image => image.clientWidth / inches(image) / 72)).toFixed(3);
}};
</script></body>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, such as Debian's package chromium")


def browse(path, tmp_path):
    """What a browser makes of a page, and what it says."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, done.stderr


class OnPhone(NamedTuple):
    """A page in a window of 390 pixels."""

    width: int
    n_loaded: int
    n_images: int
    font: int
    point: float
    """Pixels of a point of the figure that is drawn smallest."""
    said: str


def on_phone(html, tmp_path):
    (tmp_path / "page.html").write_text(html)
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format("page.html"))
    text, said = browse(probe, tmp_path)
    found = re.search(r"wide (\d+) loaded (\d+) of (\d+) font (\d+) points ([0-9.]+)", text)
    assert found, said[-500:]
    *whole, point = found.groups()
    return OnPhone(*map(int, whole), float(point), said)


def test_the_page_fits_a_phone_and_shows_every_figure(fitted, tmp_path):
    page = on_phone(report_html(fitted, "birds.csv"), tmp_path)
    assert page.width <= 390
    assert page.n_loaded == page.n_images == 4
    assert page.font >= 16
    assert page.point > 0.9  # so that nine points are eight pixels
    assert "CONSOLE" not in page.said


def test_many_classes_with_long_names_stay_readable_on_a_phone(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.choice([f"class {i} of {'many ' * 6}" for i in range(28)], 600)
    table = {f"{'long name ' * 5}{i}": rng.normal(size=600) for i in range(3)}
    fitted = fit_table(table | {"label": label}, "label", FitOptions(model="linear", compare=False))
    page = on_phone(report_html(fitted, "many.csv"), tmp_path)
    assert page.width <= 390
    assert page.point > 0.9


def test_a_strip_of_panels_stays_readable_on_a_phone(tmp_path):
    with figure_file(tmp_path, "strip", 1, 4, width=12.0, height=3.6):
        pass
    html = Page("Strip")
    html.section("Four panels", image_html(tmp_path / "strip.png", "four panels"))
    page = on_phone(html.html(), tmp_path)
    assert page.width <= 390
    assert page.point > 0.9


def test_a_page_that_complains_is_noticed(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<!DOCTYPE html><script>console.error('no')</script>")
    assert "CONSOLE" in browse(path, tmp_path)[1]
