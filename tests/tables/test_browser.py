"""The report in a real browser: no complaints, nothing from the network, and room enough on a phone."""

import re
import shutil
import subprocess

import pytest

from gaussify.tables import report_html

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
  const size = parseFloat(inside.defaultView.getComputedStyle(inside.body).fontSize);
  document.body.innerText = "wide " + inside.documentElement.scrollWidth + " loaded " +
    images.filter(image => image.complete && image.naturalWidth > 0).length + " of " + images.length + " font " + size;
}};
</script></body>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, such as Debian's package chromium")


def browse(path, tmp_path):
    """What a browser makes of a page, and what it says."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, done.stderr


@pytest.fixture
def report(fitted, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report_html(fitted, "birds.csv"))
    return path


def test_the_page_fits_a_phone_and_shows_every_figure(report, tmp_path):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(report.name))
    text, said = browse(probe, tmp_path)
    found = re.search(r"wide (\d+) loaded (\d+) of (\d+) font (\d+)", text)
    assert found, said[-500:]
    width, n_loaded, n_images, size = map(int, found.groups())
    assert width <= 390
    assert n_loaded == n_images == 4
    assert size >= 16
    assert "CONSOLE" not in said


def test_a_page_that_complains_is_noticed(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<!DOCTYPE html><script>console.error('no')</script>")
    assert "CONSOLE" in browse(path, tmp_path)[1]
