"""The page in a real browser: no console error, every chart drawn, nothing wider than the window."""

import json
import re
import shutil
import subprocess

import pytest

from rerank.cli.main import main
from tests.support.patience import SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0", "--dump-dom",
]  # fmt: skip
MEASURE = """<script>
const drawn = [...document.querySelectorAll('figure svg')].map(svg => svg.getBBox());
const boxes = drawn.map(box => [box.width, box.height]);
const root = document.documentElement;
const found = {boxes, wide: root.scrollWidth - root.clientWidth, page: getComputedStyle(document.body).backgroundColor};
document.body.dataset.found = JSON.stringify(found);
</script>"""
"""What only the test puts into the page: what the browser made of it."""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width, scheme, page", [(1200, 1, "rgb(255, 255, 255)"), (500, 0, "rgb(21, 23, 27)")])
def test_a_browser_draws_every_chart_without_a_complaint(folder, tmp_path, width, scheme, page):
    main(["report", str(folder)])
    file = tmp_path / "page.html"
    file.write_text((folder / "report.html").read_text().replace("</body>", f"{MEASURE}</body>"))
    window = [f"--window-size={width},800", f"--blink-settings=preferredColorScheme={scheme}"]
    words = [CHROMIUM, *FLAGS, *window, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    found = json.loads(re.search(r"data-found='?\"?(\{.*?\})['\"]", done.stdout)[1].replace("&quot;", '"'))
    assert len(found["boxes"]) == 2 + 2 * 4
    assert all(width > 100 < height for width, height in found["boxes"])
    assert found["wide"] <= 0
    assert found["page"] == page
