"""A real headless Chromium, driven by Selenium."""

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        window = Chrome(options, ChromeService(driver))
        try:
            yield Browser(window)
        finally:
            window.quit()


class Browser:
    """One window; `window` is Selenium's, which clicks and types."""

    def __init__(self, window: Chrome) -> None:
        self.window = window

    def open(self, page: Path | str, *, width: int = DESKTOP, dark: bool = False) -> None:
        """Show a file or an address in a window of this width, under a light or a dark theme."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})
        # The browser's own first page may still be loading; its requests are not the page's.
        self.window.get("about:blank")
        self.requests()
        self.window.get(page if isinstance(page, str) else page.resolve().as_uri())

    def script(self, body: str) -> Any:
        """What a function with this body returns in the page."""
        return self.window.execute_script(body)

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
            except WebDriverException:
                if wait is None:
                    raise
                time.sleep(wait)
        raise AssertionError

    def screenshot(self) -> bytes:
        """The whole page, beyond the window, as PNG."""
        shot = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def _log(self, kind: str) -> Any:
        return self.window.get_log(kind)  # type: ignore[no-untyped-call]

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self.window.execute_cdp_cmd(command, parameters)


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
