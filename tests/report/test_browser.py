"""Reports in a browser: they fit a phone and a laptop, in light and dark, log nothing, and ask for nothing.

Chromium is looked for on the path; without it the tests are skipped. BATCHSIM_SHOTS names a folder for the screenshots.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from batchsim.report import html
from tests.report.pages import NAMES, made

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
)  # fmt: skip
PROBE = """<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, pre, svg, figure.wide"))
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className);
  const table = document.querySelector("table.sortable");
  let sorted = null;
  if (table) {
    const last = table.rows[0].cells.length - 1;
    const column = [...table.tHead.rows[0].cells].findIndex((c, i) => i > 0 && c.querySelector("button"));
    const values = () => [...table.tBodies[0].rows].map((r) => r.cells[column].dataset.sort)
      .filter((v) => v !== undefined).map(Number);
    table.tHead.rows[0].cells[column].querySelector("button").click();
    const up = values();
    table.tHead.rows[0].cells[column].querySelector("button").click();
    const down = values();
    sorted = [up, down];
  }
  const paper = getComputedStyle(document.body).backgroundColor;
  parent.postMessage(JSON.stringify({ wide, sorted, paper, width: innerWidth }), "*");
});
</script></body>"""
FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><title></title>
<script>addEventListener("message", (event) => { document.title = event.data; });</script>
<iframe src="report.html" width="{width}" height="900" style="border: 0"></iframe>"""
"""A window has a least width, a frame has not."""


@pytest.fixture(scope="module")
def chromium() -> str:
    """The browser's program."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no Chromium on the path")
    return found


def started(chromium: str, tmp_path: Path, file: Path, dark: bool, width: int, *actions: str) -> tuple[str, str]:
    """(stdout, stderr) of a headless browser with an empty profile."""
    profile = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [
        chromium,
        *FLAGS,
        f"--user-data-dir={profile}",
        scheme,
        f"--window-size={width},5200",
        *actions,
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_report_in_a_browser(chromium: str, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    """Nothing overflows the window, columns sort both ways, the scheme is followed, the console stays empty, and the
    only address asked for is the file's."""
    file = tmp_path / "report.html"
    text = html.render(made(name)).replace("</body>", PROBE)
    file.write_text(text, encoding="utf-8")
    outer, log = tmp_path / "outer.html", tmp_path / "net.json"
    outer.write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    actions = ("--dump-dom", f"--log-net-log={log}", "--virtual-time-budget=3000")
    out, errors = started(chromium, tmp_path, outer, dark, 1400, *actions)
    assert "CONSOLE" not in errors
    found = json.loads(_unescaped(re.search(r"<title>(.*?)</title>", out, re.DOTALL)[1]))  # type: ignore[index]
    assert found["width"] == width
    assert found["wide"] == []
    light = sum(map(int, re.findall(r"\d+", found["paper"])[:3])) > 3 * 128
    assert light != dark
    if found["sorted"]:
        up, down = found["sorted"]
        assert up == sorted(up)
        assert down == sorted(down, reverse=True)
    asked = set(re.findall(r'"url":"([a-z]+:[^"]*)"', log.read_text(encoding="utf-8", errors="replace")))
    assert not [url for url in asked if url.startswith(("http", "ws")) and _of_the_page(url)]


def _unescaped(text: str) -> str:
    import html as escapes

    return escapes.unescape(text)


def _of_the_page(url: str) -> bool:
    """Not one of the browser's own: it asks its maker's servers at start, whatever the page."""
    return not re.match(r"https?://[^/]*\.(?:google|googleapis|gvt1|gstatic)\.com", url)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False), (1280, True)])
def test_screenshots(chromium: str, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    """A picture of every report at phone and laptop width in both schemes, of the width asked for."""
    file = tmp_path / "report.html"
    file.write_text(html.render(made(name)), encoding="utf-8")
    shots = Path(os.environ.get("BATCHSIM_SHOTS", tmp_path))
    shot = shots / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    started(chromium, tmp_path, file, dark, width, f"--screenshot={shot}")
    head = shot.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert struct.unpack(">II", head[16:24])[0] == width
