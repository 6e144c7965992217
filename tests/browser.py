"""A real headless Chromium, driven over WebDriver's plain HTTP protocol."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Quiet: nothing of the browser's own, such as looking for updates, may reach for the network.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
PHONE, DESKTOP = 390, 1280


def find_chromium() -> tuple[str, str]:
    """The browser and its driver; skips the test where one of them is not installed."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with chromedriver on PATH (Debian: chromium, chromium-driver)")
    return browser, driver


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A fresh browser; it and its profile are gone afterwards."""
    program, driver = find_chromium()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            said = ""
            while not (port := re.search(r"successfully on port (\d+)", said)):
                said = server.stdout.readline()
                assert said, "chromedriver ended before it listened"
            browser = Browser(f"http://127.0.0.1:{port[1]}", program, profile)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            server.terminate()


class Browser:
    """One window."""

    def __init__(self, server: str, program: str, profile: str) -> None:
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._session = server
        options = {"binary": program, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"{server}/session/{made['sessionId']}"

    def open(self, page: Path, *, width: int = DESKTOP, dark: bool = False) -> None:
        """Show a file in a window of this width, under a light or a dark system theme."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})
        # The browser's own first page may still be loading; its requests are not the page's.
        self._ask("POST", "/url", {"url": "about:blank"})
        self.requests()
        self._ask("POST", "/url", {"url": page.resolve().as_uri()})

    def script(self, body: str) -> Any:
        """What a function with this body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": body, "args": []})

    def console(self) -> list[str]:
        """Messages of the console since it was last asked."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since this was last asked."""
        events = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def pdf(self) -> bytes:
        """The page in print. A browser that has just started may not be able to print yet."""
        for wait in (0.5, 1.0, 2.0, None):
            try:
                printed = self._devtools("Page.printToPDF", {"printBackground": True})
                return base64.b64decode(printed["data"])
            except RuntimeError:
                if wait is None:
                    raise
                time.sleep(wait)
        raise AssertionError

    def screenshot(self) -> bytes:
        """The whole page, beyond the window, as PNG."""
        shot = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def close(self) -> None:
        self._ask("DELETE", "")

    def _log(self, kind: str) -> Any:
        return self._ask("POST", "/se/log", {"type": kind})

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self._session + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:500]}") from error


def check_page(browser: Browser, page: Path, *, width: int, dark: bool) -> None:
    """A page made by `render_page` is quiet, complete, within its width, and readable."""
    browser.open(page, width=width, dark=dark)
    check_quiet(browser, page)
    check_sections(browser)
    check_widths(browser, width)
    check_contrast(browser, dark=dark)


def check_quiet(browser: Browser, page: Path) -> None:
    """No message on the console, and nothing asked for but the page itself."""
    assert browser.console() == []
    assert browser.requests() == [page.resolve().as_uri()]


def check_sections(browser: Browser) -> None:
    """Every section that the contents name is there and takes up room."""
    heights = browser.script(
        "return [...document.querySelectorAll('nav a')].map(a =>"
        " document.querySelector(a.getAttribute('href')).getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) > 50
    assert len(heights) == browser.script("return document.querySelectorAll('section').length")


def check_widths(browser: Browser, width: int) -> None:
    """Nothing is wider than the window, and no word of a picture lies outside of it."""
    assert browser.script("return document.documentElement.scrollWidth") <= width
    outside = browser.script(
        "return [...document.querySelectorAll('svg text')].filter(text => {"
        " const word = text.getBoundingClientRect();"
        " const paper = text.closest('svg').getBoundingClientRect();"
        " return word.left < paper.left - 1 || word.right > paper.right + 1"
        "  || word.top < paper.top - 1 || word.bottom > paper.bottom + 1"
        "}).map(text => text.textContent)"
    )
    assert outside == []


def check_contrast(browser: Browser, *, dark: bool) -> None:
    """Words stand out from their paper by 4.5 to 1, on the page and in its pictures."""
    colours = browser.script(
        "const of = (e, name) => getComputedStyle(document.querySelector(e))[name];"
        "return [[of('body', 'backgroundColor'), of('body', 'color')],"
        " [of('body', 'backgroundColor'), of('figcaption', 'color')],"
        " [of('svg rect', 'fill'), of('svg text[fill=\"#1b1f24\"]', 'fill')],"
        " [of('svg rect', 'fill'), of('svg text[fill=\"#59636e\"]', 'fill')]]"
    )
    for paper, ink in colours:
        assert (luminance(paper) < 0.05) == dark
        light, deep = sorted((luminance(paper), luminance(ink)), reverse=True)
        assert (light + 0.05) / (deep + 0.05) > 4.5, (paper, ink)


def luminance(colour: str) -> float:
    """Of a colour written rgb(r, g, b), as contrast is defined for web pages (WCAG 2)."""
    levels = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in levels]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
