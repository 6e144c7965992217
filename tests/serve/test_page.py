"""The page for people in a real browser: it answers, by mouse and keyboard, light and dark."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

import fastgcn
from tests.browser import DESKTOP, PHONE, Browser, chromium, luminance
from tests.serve.conftest import Bank
from tests.serve.server import TOKEN, Client, serving

# With this variable, pictures of the page are written there, to be looked at.
PICTURES = os.environ.get("FASTGCN_PICTURES")


class Page:
    """The page in a browser."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, fragment: str = "", *, width: int = DESKTOP, dark: bool = False) -> None:
        self.browser.open(f"{self.address}/{fragment}", width=width, dark=dark)

    def __getitem__(self, name: str) -> WebElement:
        return self.browser.window.find_element(By.ID, name)

    def wait(self, holds: Callable[[], object]) -> None:
        WebDriverWait(self.browser.window, 20).until(lambda _: holds())

    def text(self, name: str) -> str:
        return self[name].text

    def show(self, node: str) -> None:
        self.wait(lambda: self["node-id"].is_displayed())
        self["node-id"].clear()
        self["node-id"].send_keys(node, Keys.ENTER)
        self.wait(lambda: "predicted" in self.text("status") and node in self.text("status"))
        self.wait(lambda: "Computing" not in self.text("why"))

    def picture(self, name: str) -> None:
        if PICTURES:
            (Path(PICTURES) / f"{name}.png").write_bytes(self.browser.screenshot())


@pytest.fixture(scope="module")
def page(bank: Bank) -> Iterator[Page]:
    with chromium() as browser, serving(bank.runs / "one", token=None) as client:
        yield Page(browser, client.address)


def test_a_node_its_prediction_neighbours_and_reasons(page: Page, bank: Bank) -> None:
    page.open()
    page.show("C0000003")
    expected = fastgcn.predict(bank.run(), bank.graph, ids=["C0000003"])[0]
    assert page.text("prediction") == ("fraud", "honest")[int(expected.argmax())]
    assert f"{100 * expected.max():.1f} %" in page.text("bars")
    near = bank.graph.indices[bank.graph.indptr[3] : bank.graph.indptr[4]]
    assert page.browser.script("return document.querySelectorAll('#near li').length") == len(near)
    drawn = "return [...document.querySelectorAll('#picture title')].map((t) => t.textContent)"
    names = [f"C{i:07}" for i in (3, *near)]
    assert [title.partition(":")[0] for title in page.browser.script(drawn)] == names
    places = "return [...document.querySelectorAll('#picture circle')].map((c) => c.outerHTML)"
    before = page.browser.script(places)
    chosen = page.browser.window.find_elements(By.CSS_SELECTOR, "#picture circle")[1]
    chosen.click()
    page.wait(lambda: page.text("status").startswith(f"Node {names[1]}:"))
    page.show("C0000003")
    assert page.browser.script(places) == before  # the same nodes have the same places
    reasons = fastgcn.explain(bank.run(), bank.graph, "C0000003")
    assert reasons.features[0].name in page.text("why")
    assert str(reasons.neighbors[0].id) in page.text("why")
    page["node-id"].clear()
    page["node-id"].send_keys("nobody", Keys.ENTER)
    page.wait(lambda: "has no node 'nobody'" in page.text("error"))


def test_what_if_changes_the_answer(page: Page, bank: Bank) -> None:
    page.open()
    page.show("C0000003")
    Select(page["if-column"]).select_by_value("age")
    page["if-value"].clear()
    page["if-value"].send_keys("80")
    gone = Select(page["if-remove"]).options[1].text
    Select(page["if-remove"]).select_by_visible_text(gone)
    page["if-add"].send_keys("C0000100", Keys.ENTER)
    page.wait(lambda: page.text("if-answer"))
    from fastgcn.infer.what_if import what_if

    after = what_if(
        bank.run(), bank.graph, "C0000003", features={"age": 80}, add=["C0000100"], remove=[gone]
    )[0]
    assert f"{100 * after.max():.1f} %" in page.text("if-answer")
    page.picture("what-if")


def test_a_new_node_and_files(page: Page, tmp_path: Path) -> None:
    page.open()
    page.show("C0000003")
    page["tab-new"].click()
    page["copy"].click()
    page["new-id"].clear()
    page["new-id"].send_keys("X0", Keys.ENTER)
    page.wait(lambda: "%" in page.text("new-answer"))
    page.picture("new")
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("customer,age,segment\nX0,30,retail\nX1,50,private\n")
    edges.write_text("payer,payee,times\nX0,C0000003,2\nX1,X0,1\n")
    page["tab-files"].click()
    page["nodes-file"].send_keys(str(nodes))
    page["edges-file"].send_keys(str(edges))
    page.browser.script("document.getElementById('files').requestSubmit()")
    page.wait(lambda: page["files-answer"].is_displayed())
    assert "2 predictions" in page.text("files-answer")
    assert "X1" in page.text("files-answer")
    link = page["files-answer"].find_element(By.TAG_NAME, "a")
    saved = page.browser.window.execute_async_script(
        "const done = arguments[1]; fetch(arguments[0].href).then(a => a.text()).then(done, done)",
        link,
    )
    assert not str(saved).startswith("id")  # the policy lets no script read it, only the person
    assert link.get_attribute("download") == "predictions.csv"
    page.browser.console()


def test_keyboard_and_screen_reader(page: Page) -> None:
    page.open("#C0000003")
    page.wait(lambda: page["node"].is_displayed())
    page["tab-node"].send_keys(Keys.ARROW_RIGHT)
    assert page["tab-new"].get_attribute("aria-selected") == "true"
    assert page["panel-new"].is_displayed()
    assert page.browser.script("return document.activeElement.id") == "tab-new"
    unnamed = page.browser.script(
        "return [...document.querySelectorAll('input, select, button, meter, [role=region]')]"
        ".filter(e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label')"
        " && !e.getAttribute('aria-labelledby') && !e.textContent.trim()).map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert page["status"].get_attribute("aria-live") == "polite"
    assert page["error"].get_attribute("role") == "alert"
    ids = page.browser.script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("width", "dark"), [(PHONE, True), (DESKTOP, False)], ids=["phone-dark", "desktop-light"]
)
def test_it_fits_can_be_read_and_asks_nobody_else(page: Page, width: int, dark: bool) -> None:
    page.browser.console()
    page.open("#C0000003", width=width, dark=dark)
    page.wait(lambda: page["node"].is_displayed())
    page.wait(lambda: "Computing" not in page.text("why"))
    page.picture("phone-dark" if dark else "desktop-light")
    assert page.browser.script("return document.documentElement.scrollWidth") <= width
    assert page.browser.console() == []
    asked = page.browser.requests()
    assert all(each.startswith((page.address, "data:")) for each in asked), asked
    for ink, paper in (("body", "body"), (".hint", ".card"), (".up", ".card"), ("a", "body")):
        colours = page.browser.script(
            "const of = (e, name) => getComputedStyle(document.querySelector(e))[name];"
            f"return [of('{ink}', 'color'), of('{paper}', 'backgroundColor')]"
        )
        deep, light = sorted(map(luminance, colours))
        assert (light + 0.05) / (deep + 0.05) > 4.5, (ink, colours)
        assert (luminance(colours[1]) < 0.1) == dark


def test_a_token_is_asked_for(page: Page, bank: Bank) -> None:
    with serving(bank.runs / "one") as client:
        other = Page(page.browser, client.address)
        other.open()
        other.wait(lambda: other["token-form"].is_displayed())
        other["token"].send_keys(TOKEN, Keys.ENTER)
        other.show("C0000003")
        assert isinstance(client, Client)
