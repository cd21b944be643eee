"""The page in a real browser: Playwright drives Debian's Chromium."""

import base64
import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect, sync_playwright

from serving.errors import ServingError
from tests.search_service.conftest import TOKEN, RunningSearch, run_search
from tests.search_service.fake_index import FakeIndex, code_of_text, draw

_USUAL_PATHS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _USUAL_PATHS)), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="the tests of the page in a browser were left out, because there is no Chromium: "
    "apt-get install chromium, or set CHROMIUM to the path of a browser",
)
# Milliseconds. Each wait ends as soon as its condition holds, so only a failing test takes this long.
WAIT = 60_000
PICTURES = "section.panel.images a.hit"
TEXTS = "section.panel.texts a.hit"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT)
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs privileges that containers do not have; the tests load only their own page.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=2 * WAIT)
        yield browser
        browser.close()


@pytest.fixture
def messages() -> list[str]:
    """Console messages, errors of scripts, and requests to other hosts: there must be none."""
    return []


@pytest.fixture
def open_page(browser, service, messages):
    """`open_page("/?q=red")` opens the page in a context of its own."""
    contexts = []

    def opened(path: str = "/", address: str = service.address, wait_for: str | None = "a.hit", **options) -> Page:
        contexts.append(browser.new_context(viewport={"width": 1200, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith((address, "blob:")) or messages.append(request.url))
        page.goto(address + path)
        if wait_for:
            page.wait_for_selector(wait_for)
            wait_for_answers(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert messages == []


@pytest.fixture
def large(pictures, tmp_path) -> Iterator[RunningSearch]:
    """1,200 items."""
    with run_search(lambda *_: FakeIndex(pictures, copies=30), tmp_path, picture_root=pictures) as running:
        yield running


def captions(page: Page, selector: str = PICTURES) -> list[str]:
    return page.locator(f"{selector} .caption").all_inner_texts()


def wait_for_first(page: Page, text: str, selector: str = PICTURES) -> None:
    expect(page.locator(f"{selector} .caption").first).to_contain_text(text)


def wait_for_answers(page: Page) -> None:
    """Waits until every list has its answer. The page marks a list as busy in the step in which its search starts."""
    expect(page.locator("section.panel[aria-busy=true]")).to_have_count(0)


def wait_for_address(page: Page, wanted: dict[str, str]) -> None:
    """Waits until the address has exactly the parameters `wanted`, and every list has its answer."""
    with contextlib.suppress(TimeoutError):
        page.wait_for_function(
            """(wanted) => {
              const given = new URLSearchParams(location.search);
              return given.size === Object.keys(wanted).length
                && Object.entries(wanted).every(([name, value]) => given.get(name) === value);
            }""",
            arg=wanted,
        )
    query = parse_qs(urlsplit(page.evaluate("location.href")).query)
    assert {name: values[0] for name, values in query.items()} == wanted
    wait_for_answers(page)


@contextlib.contextmanager
def one_message(page: Page, messages: list[str], part: str) -> Iterator[None]:
    """The browser itself reports the request that fails in this block, and nothing else is reported."""
    with page.expect_console_message(lambda message: part in message.text):
        yield
    assert len(messages) == 1
    assert part in messages.pop()


def drop(page: Page, data: bytes, name: str = "picture.png", kind: str = "image/png", event: str = "drop") -> None:
    """Drops a file on the page, or pastes it."""
    page.evaluate(
        """([b64, name, kind, event]) => {
          const bytes = Uint8Array.from(atob(b64), (one) => one.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], name, { type: kind }));
          const made = event === "paste"
            ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true })
            : new DragEvent(event, { dataTransfer: transfer, bubbles: true, cancelable: true });
          document.body.dispatchEvent(made);
        }""",
        [base64.b64encode(data).decode(), name, kind, event],
    )


def test_the_start_offers_items(open_page):
    page = open_page("/")
    assert page.locator("a.hit").count() == 24
    expect(page.locator("#facts")).to_have_text("shapes: 40 items, 32 bits")
    page.locator("a.hit").first.click()
    wait_for_first(page, "a red")
    wait_for_address(page, {"id": "1", "side": "image"})


def test_search_by_text(open_page):
    page = open_page("/")
    page.get_by_label("Search by text").fill("a red circle")
    page.keyboard.press("Enter")
    wait_for_first(page, "a red circle")
    wait_for_address(page, {"q": "a red circle"})
    assert page.title() == "a red circle – Search"
    expect(page.locator("#status")).to_have_text("Pictures: 40 results")
    assert page.locator(".summary").inner_text().startswith("40 of 40 items, ")
    expect(page.locator("main img").first).to_have_js_property("naturalWidth", 96)
    page.get_by_role("radio", name="Texts").check()
    wait_for_first(page, "a red circle", TEXTS)
    wait_for_address(page, {"q": "a red circle", "find": "texts"})
    page.get_by_role("radio", name="Both").check()
    page.wait_for_selector(PICTURES)
    assert page.locator("section.panel").count() == 2


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_search_by_a_dropped_or_pasted_picture(open_page, service, event):
    page = open_page("/")
    if event == "drop":
        drop(page, draw("blue", "ring"), event="dragenter")
        expect(page.locator("#drop")).to_be_visible()
    drop(page, draw("blue", "ring"), event=event)
    wait_for_first(page, "a blue")
    expect(page.locator("#drop")).to_be_hidden()
    expect(page.locator("#query-name")).to_have_text("Your picture")
    expect(page.locator("#query-picture")).to_have_js_property("naturalWidth", 96)
    assert all(" blue " in caption for caption in captions(page)[:5])
    expect(page.locator("#status")).to_have_text("Pictures: 40 results")
    wait_for_address(page, {"code": code_of_text("blue").hex()})
    with page.expect_download() as download:
        page.locator("a.json").click()
    saved = json.loads(download.value.path().read_text())
    assert saved["results"][0]["query"]["code"] == code_of_text("blue").hex()

    # Somebody else opens the address, and gets the same results from the code.
    shared = open_page(page.evaluate("location.pathname + location.search"))
    wait_for_first(shared, "a blue")
    assert captions(shared) == captions(page)
    expect(shared.locator("#query-name")).to_have_text(f"Code {code_of_text('blue').hex()}")


def test_search_by_a_chosen_picture_and_back(open_page):
    page = open_page("/?q=green+square")
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": draw("purple", "bar")})
    wait_for_first(page, "a purple")
    page.get_by_role("radio", name="Texts").check()
    wait_for_first(page, "a purple", TEXTS)
    page.go_back()
    wait_for_first(page, "a purple")
    page.go_back()
    wait_for_first(page, "a green square")
    expect(page.get_by_label("Search by text")).to_have_value("green square")
    page.go_forward()
    wait_for_first(page, "a purple")
    expect(page.locator("#query-name")).to_have_text("Your picture")
    page.get_by_role("button", name="Remove the query").click()
    expect(page.locator("#query")).to_be_hidden()


def test_files_that_are_not_pictures(open_page, service, messages):
    page = open_page("/")
    drop(page, b"hello", "notes.txt", "text/plain")
    expect(page.locator(".notice.problem")).to_contain_text("Only pictures can be dropped here.")
    page.get_by_role("button", name="Close").click()
    drop(page, b"hello", "broken.heic", "image/heic")
    expect(page.locator(".notice.problem")).to_contain_text("broken.heic is not a picture that this browser can read.")
    with one_message(page, messages, "400"):
        drop(page, b"hello", "broken.png", "image/png")
        expect(page.locator(".panel .notice.problem")).to_contain_text("`queries[0].image` must be a picture")


def test_pictures_in_other_formats_are_converted_by_the_browser(open_page, service):
    page = open_page("/")
    square = b'<rect width="60" height="60" fill="#3ca050"/>'
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90">' + square + b"</svg>"
    drop(page, svg, "drawing.svg", "image/svg+xml")
    wait_for_first(page, "a green")


def test_search_by_click_and_back(open_page, service):
    page = open_page("/?q=red+circle&find=both")
    page.wait_for_selector(TEXTS)
    before = captions(page)
    third = page.locator(TEXTS).nth(2)
    third.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    id = third.get_attribute("data-id")
    third.click()
    wait_for_address(page, {"id": id, "side": "text", "find": "both"})
    expect(page.locator("#query-name")).to_have_text(f"Text of {id}")
    page.wait_for_selector(TEXTS)
    assert page.evaluate("document.activeElement.id") == "results"
    assert page.evaluate("scrollY") == 0
    searches = len(service.index.searches)
    page.go_back()
    wait_for_address(page, {"q": "red circle", "find": "both"})
    assert captions(page) == before
    assert abs(page.evaluate("scrollY") - place) < 2
    assert len(service.index.searches) == searches, "the back button must not search again"


def test_filters(open_page, service):
    page = open_page("/?q=red")
    page.locator("summary").click()
    page.get_by_label("label", exact=True).select_option("ring")
    wait_for_address(page, {"q": "red", "f.label": "ring"})
    assert len(captions(page)) == 8
    assert all(" ring," in caption for caption in captions(page))
    page.get_by_label("year, at least").fill("2010")
    page.keyboard.press("Tab")
    wait_for_address(page, {"q": "red", "f.label": "ring", "f.year": "2010.."})
    assert service.index.searches[-1].where == "label = 'ring' and year >= 2010"
    assert 0 < len(captions(page)) < 8
    expect(page.locator("#filter-count")).to_have_text("2 in use")
    page.get_by_label("Expression").fill("source = 'set 0'")
    page.keyboard.press("Enter")
    wait_for_address(page, {"q": "red", "f.label": "ring", "f.year": "2010..", "where": "source = 'set 0'"})
    expect(page.locator("#filter-count")).to_have_text("3 in use")
    assert len(captions(page)) > 0
    assert service.index.searches[-1].where == "label = 'ring' and year >= 2010 and (source = 'set 0')"
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator(PICTURES)).to_have_count(40)
    wait_for_address(page, {"q": "red"})


def test_nothing_found(open_page):
    page = open_page("/?q=red&f.label=it%27s+%22x%22&radius=2", wait_for=".notice")
    expect(page.locator(".notice")).to_contain_text("No picture passes the filter within 2 bits of the query.")
    expect(page.locator("#status")).to_have_text("Pictures: nothing found")
    page.get_by_role("button", name="Clear filters").last.click()
    expect(page.locator(".notice")).to_contain_text("No picture differs from the query in at most 2 bits.")
    page.get_by_role("button", name="Any radius").click()
    wait_for_first(page, "a red")


def test_a_shared_address_restores_everything(open_page):
    options = "find=both&rerank=none&top=20&radius=9&show=distance%2Cbits"
    page = open_page(f"/?q=blue&{options}&f.label=blue&f.year=2001..2020&where=year+%3E%3D+2002", wait_for=TEXTS)
    assert page.locator("#text").input_value() == "blue"
    assert page.locator("input[name=find]:checked").get_attribute("value") == "both"
    values = {id: page.locator(f"#{id}").input_value() for id in ("rerank", "top", "radius", "where")}
    assert values == {"rerank": "none", "top": "20", "radius": "9", "where": "year >= 2002"}
    assert page.locator("#show-distance").is_checked()
    assert page.locator("#show-bits").is_checked()
    assert page.get_by_label("label", exact=True).input_value() == "blue"
    assert page.get_by_label("year, at most").input_value() == "2020"
    assert page.locator(".distance").first.inner_text().startswith("#1 · ")
    other = open_page(page.evaluate("location.pathname + location.search"), wait_for=TEXTS)
    assert captions(other) == captions(page)
    assert captions(other, TEXTS) == captions(page, TEXTS)


def test_results_as_json(open_page, service):
    page = open_page("/?q=red&f.label=ring&top=5&rerank=none")
    answer = service.client.get(page.locator("a.json").get_attribute("href")).json()
    assert [hit["id"] for hit in answer["results"][0]["hits"]] == page.locator(PICTURES).evaluate_all(
        "hits => hits.map((hit) => hit.dataset.id)"
    )


def test_distances_and_bits(open_page, service):
    page = open_page("/?q=red+circle")
    assert page.locator(".distance, .bits").count() == 0
    page.get_by_label("Distances").check()
    page.get_by_label("Bits").check()
    hit = service.search(text="red circle", find="images", top=1).json()["results"][0]
    differing = int.from_bytes(bytes.fromhex(hit["query"]["code"]), "little") ^ int.from_bytes(
        bytes.fromhex(hit["hits"][0]["code"]), "little"
    )
    positions = ", ".join(str(bit) for bit in range(32) if differing >> bit & 1)
    expect(page.locator(".bits").first).to_have_attribute(
        "aria-label", f"1 of 32 bits differ from the query: {positions}"
    )
    expect(page.locator(".distance").first).to_have_text("#1 · 1 bit · 0.93")
    expect(page.locator("#legend")).to_contain_text("rank, bits that differ from the query, score")
    wait_for_address(page, {"q": "red circle", "show": "distance,bits"})


def test_side_by_side(open_page, service):
    page = open_page("/?q=red")
    page.get_by_label("Order").select_option("compare")
    page.wait_for_selector(".move")
    assert page.locator("h2").all_inner_texts() == ["Pictures by Hamming distance", "Pictures re-ranked"]
    lists = [
        page.locator(f"section:nth-of-type({number}) a.hit").evaluate_all("all => all.map((one) => one.dataset.id)")
        for number in (1, 2)
    ]
    for position, order in enumerate(("none", "asymmetric")):
        found = service.search(text="red", find="images", top=50, rerank=order).json()["results"][0]["hits"]
        assert lists[position] == [hit["id"] for hit in found]
    assert lists[0] != lists[1]
    moved = page.locator("section:nth-of-type(2) li").nth(0).locator(".move .hidden").inner_text()
    before = lists[0].index(lists[1][0]) + 1
    assert moved == ("Same rank" if before == 1 else f"Rank {before} by Hamming distance")
    # On the picture: a line of its own would shift the rows of one list against those of the other.
    frame, move = (page.locator(f"section:nth-of-type(2) {part}").first.bounding_box() for part in (".frame", ".move"))
    assert frame["y"] < move["y"] < move["y"] + move["height"] < frame["y"] + frame["height"]


def test_a_failing_search_can_be_repeated(open_page, service, messages):
    page = open_page("/?q=red")
    service.index.failure = ServingError("UNAVAILABLE", "The database cannot be reached.")
    try:
        with one_message(page, messages, "503"):
            page.get_by_label("Search by text").fill("blue")
            page.keyboard.press("Enter")
        box = page.locator(".notice.problem")
        expect(box).to_contain_text("The database cannot be reached.")
        assert re.search(r"Request [0-9a-f]+-\d+", box.inner_text())
        expect(page.locator("#status")).to_contain_text("The search failed.")
    finally:
        service.index.failure = None
    page.get_by_role("button", name="Try again").click()
    wait_for_first(page, "a blue")


def test_a_wrong_expression_is_reported_at_its_field(open_page, messages):
    page = open_page("/?q=red")
    with one_message(page, messages, "400"):
        page.goto(page.url + "&where=label+%3D")
    expect(page.locator("#where-error")).to_contain_text("The expression cannot be parsed")
    assert page.locator("#where").get_attribute("aria-invalid") == "true"
    page.get_by_label("Expression").fill("label = 'red'")
    page.keyboard.press("Enter")
    wait_for_first(page, "a red")
    expect(page.locator("#where-error")).to_be_hidden()


def test_a_service_that_cannot_be_reached(open_page, messages):
    page = open_page("/?q=red")
    page.route("**/v1/search", lambda route: route.abort())
    with one_message(page, messages, "ERR_FAILED"):
        page.get_by_role("radio", name="Texts").check()
    expect(page.locator(".notice.problem")).to_contain_text("The service cannot be reached.")
    page.unroute("**/v1/search")
    page.get_by_role("button", name="Try again").click()
    wait_for_first(page, "a red", TEXTS)


def test_a_slow_search(open_page):
    page = open_page("/?q=red")
    page.clock.install()
    held = []
    page.route("**/v1/search", lambda route: held.append(route))
    page.get_by_label("Search by text").fill("blue")
    page.keyboard.press("Enter")
    expect(page.locator("section.panel")).to_have_attribute("aria-busy", "true")
    page.clock.run_for(300)
    expect(page.locator(".skeleton")).to_be_visible()
    page.clock.run_for(5000)
    expect(page.locator(".notice")).to_contain_text("Still searching")
    expect(page.locator("#status")).to_have_text("The search takes longer than usual.")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".notice")).to_contain_text("The search was cancelled.")
    page.unroute("**/v1/search")
    page.get_by_role("button", name="Search again").click()
    wait_for_first(page, "a blue")


def test_a_newer_search_replaces_an_unfinished_one(open_page):
    page = open_page("/?q=red")
    held = []
    page.route("**/v1/search", lambda route: held.append(route) if not held else route.continue_())
    for text in ("green", "blue"):
        page.get_by_label("Search by text").fill(text)
        page.keyboard.press("Enter")
    wait_for_first(page, "a blue")


def test_many_results_are_drawn_as_they_are_needed(large, open_page):
    page = open_page("/?q=red&top=1000", address=large.address)
    assert page.locator(PICTURES).count() < 500
    expect(page.locator(".end button")).to_contain_text("of 1,000)")
    while (drawn := page.locator(PICTURES).count()) < 1000:
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_function(
            "([hits, drawn]) => document.querySelectorAll(hits).length > drawn", arg=[PICTURES, drawn]
        )
    expect(page.locator(".end")).to_contain_text("These are the 1,000 nearest results, the maximum.")
    page.locator("#top").select_option("50")
    expect(page.locator(PICTURES)).to_have_count(50)
    more = page.get_by_role("button", name="Find 100 results")
    more.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    more.click()
    expect(page.locator(PICTURES)).to_have_count(100)
    assert abs(page.evaluate("scrollY") - place) < 2


def test_with_the_keyboard_only(large, open_page):
    page = open_page("/", address=large.address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("yellow bar")
    page.keyboard.press("Enter")
    wait_for_first(page, "a yellow bar")
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or order[-1] in ("file", "") or page.evaluate("document.activeElement.name") == "find"
        if order[-1] == "hit":
            break
    assert order[-1] == "hit", order
    page.keyboard.press("ArrowRight")
    chosen = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Enter")
    expect(page.locator("#query-name")).to_have_text(f"Item {chosen}")


def test_names_for_screen_readers(open_page):
    page = open_page("/?q=red&find=both&rerank=compare&show=bits", wait_for=".move")
    page.locator("summary").click()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, a, img, svg[role], section")].filter((node) => {
          if (node.closest("[hidden]") || (node.matches("img") && node.hasAttribute("alt"))) return false;
          const labelled = node.getAttribute("aria-labelledby");
          const texts = [node.getAttribute("aria-label"), labelled && document.getElementById(labelled)?.textContent,
            ...[...(node.labels || [])].map((label) => label.textContent)];
          if (node.matches("a, button")) texts.push(node.textContent);
          return !texts.some((text) => text && text.trim());
        }).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("[aria-live=polite]").count() == 1
    assert page.locator("main").count() == 1
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone(open_page, scheme, width):
    page = open_page("/?q=red&find=both&show=distance,bits", color_scheme=scheme, wait_for=TEXTS)
    page.set_viewport_size({"width": width, "height": 700})
    page.get_by_role("button", name="Options").click()
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_label("Order").select_option("compare")
    page.wait_for_selector(".move")
    wait_for_answers(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(open_page, scheme):
    page = open_page("/?q=red&find=both&show=distance&rerank=compare", color_scheme=scheme, wait_for=".move")
    ratios = page.evaluate(
        """() => {
          const luminance = (colour) => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map((one) => {
              const part = one / 255;
              return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const ground = (node) => {
            const colour = getComputedStyle(node).backgroundColor;
            return colour.endsWith(", 0)") ? ground(node.parentElement) : colour;
          };
          const shown = [".facts", ".hint", ".caption", ".distance", ".move", ".json", ".button", ".choice span", "h2"];
          return shown.map((selector) => {
            const node = document.querySelector(selector);
            const [one, other] = [getComputedStyle(node).color, ground(node)].map(luminance);
            return [selector, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
          });
        }"""
    )
    assert {selector: ratio for selector, ratio in ratios if ratio < 4.5} == {}


def test_captions_and_ids_are_text_not_markup(open_page, service):
    item = {"id": "<b>&?#/1", "text": "<img src=x onerror=alert(1)> a red circle"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert service.client.post("/v1/items", json={"items": [item]}, headers=headers).status_code == 200
    try:
        page = open_page("/?q=a+red+circle&find=texts", wait_for=TEXTS)
        hit = page.locator(TEXTS).filter(has_text="<img src=x")
        expect(hit).to_have_count(1)
        hit.click()
        expect(page.locator("#query-name")).to_have_text(f"Text of {item['id']}")
        wait_for_address(page, {"id": item["id"], "side": "text", "find": "texts"})
        wait_for_first(page, "a red circle", TEXTS)
        evil = open_page(
            "/?q=%3Cscript%3Ealert(1)%3C/script%3E&where=&top=x&find=%3Cb%3E&radius=-5&id=", wait_for="a.hit"
        )
        assert evil.locator("#text").input_value() == "<script>alert(1)</script>"
    finally:
        service.client.delete("/v1/items/%3Cb%3E%26%3F%23%2F1", headers=headers)


def test_a_changed_option_keeps_the_focus_and_a_typed_text(open_page):
    page = open_page("/?q=red")
    page.locator("summary").click()
    page.get_by_label("year, at least").fill("2003")
    page.keyboard.press("Tab")
    wait_for_address(page, {"q": "red", "f.year": "2003.."})
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "year, at most"
    page.get_by_label("Search by text").fill("blue")
    page.get_by_label("label", exact=True).select_option("ring")
    wait_for_address(page, {"q": "blue", "f.label": "ring", "f.year": "2003.."})
    wait_for_first(page, "a blue ring")
    assert page.get_by_label("Search by text").input_value() == "blue"
