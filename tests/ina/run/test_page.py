"""The operator's page in a real browser: the system's chromium, driven by playwright.

Screenshots stay in the tests' temporary folders.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from controller.core import Measured
from controller.vocabulary import parse_topology
from ina.run.client import Client
from ina.run.tokens import Role, Tokens
from tests.extras import needs
from tests.ina.run.bed import FABRIC, TIMEOUT_S, Bed, job, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
else:
    Browser = Page = Any

CHROMIUM = shutil.which("chromium")
SOON_MS = 1000 * TIMEOUT_S

pytestmark = [
    needs("playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser, bed: Bed) -> Iterator[Page]:
    """A page that must not complain, and must not ask anybody else."""
    made, complaints = _page(browser, bed, width=1400)
    yield made
    made.context.close()
    assert complaints == []


def _page(browser: Browser, bed: Bed, *, width: int, scheme: str = "light") -> tuple[Page, list[str]]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    made = context.new_page()
    made.set_default_timeout(SOON_MS)
    complaints: list[str] = []
    # what is refused, chromium says by itself
    made.on(
        "console",
        lambda message: (
            message.type == "error" and "status of 4" not in message.text and complaints.append(message.text)
        ),
    )
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("request", lambda asked: asked.url.startswith((bed.url, "data:")) or complaints.append(asked.url))
    return made, complaints


def _open(page: Page, bed: Bed) -> None:
    page.goto(bed.url)
    page.wait_for_selector("#live.on")


def _text(page: Page, selector: str) -> str:
    return " ".join(page.locator(selector).inner_text().split())


def test_it_shows_who_runs_who_waits_and_why(
    page: Page, bed: Bed, http: httpx.Client, tmp_path: Path
) -> None:
    jobs = [job("vision", workers=6, deadline_s=150), job("text", workers=2), job("late", workers=4)]
    http.post("/v1/jobs", json={"jobs": jobs})
    bed.advance(30)
    _open(page, bed)
    assert "2 running 1 waiting 8 / 8 GPUs in use" in _text(page, "#tiles")
    assert re.search(r"vision running 1:10 in 2:00 1,024 . h1", _text(page, "#jobs"))
    assert "needs 4 GPUs; 0 of 8 are free" in _text(page, "#queue")
    assert "late: needs 4 GPUs; 0 of 8 are free" in _text(page, "#events")
    assert page.locator("#cluster path[data-job=vision]").count() > 3, "the links of its tree"
    assert page.locator("#memory .map").count() == 4
    tips = page.locator("#memory title").all_text_contents()
    assert any(tip.startswith("vision: slots 0 to 1,023") for tip in tips)
    page.screenshot(path=tmp_path / "overview.png", full_page=True)


def test_a_job_that_is_completed_late_is_shown_so(page: Page, bed: Bed, http: httpx.Client) -> None:
    http.post(
        "/v1/jobs", json={"jobs": [job("vision", iterations=10, deadline_s=0.5, on_late="best-effort")]}
    )
    bed.advance(30)
    _open(page, bed)
    page.wait_for_selector("#over >> text=completed late")
    page.click("#over a")
    page.wait_for_selector("#facts >> text=completed late")


def test_it_goes_on_by_itself_and_what_has_the_focus_keeps_it(
    page: Page, bed: Bed, http: httpx.Client
) -> None:
    http.post("/v1/jobs", json={"jobs": [job("first")]})
    _open(page, bed)
    page.evaluate("window.mark = 1")
    page.focus("#jobs a")
    http.post("/v1/jobs", json={"jobs": [job("second")]})
    page.wait_for_selector("#jobs >> text=second")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#/jobs/first"
    http.delete("/v1/jobs/first")
    page.wait_for_selector("#over >> text=cancelled")
    page.wait_for_selector("#events >> text=by its owner")
    assert page.evaluate("window.mark") == 1, "it was not loaded again"


def test_a_jobs_page_explains_it_and_shows_its_output(
    page: Page, bed: Bed, http: httpx.Client, tmp_path: Path
) -> None:
    http.post("/v1/jobs", json={"jobs": [job("vision", deadline_s=150)]})
    bed.log("vision").write_text("epoch 1\n")
    bed.log("vision", 3).write_text("of rank 3\n")
    bed.advance(30)
    _open(page, bed)
    page.click("#jobs a")
    page.wait_for_selector("#why-body li")
    assert "300 of 1,000 iterations" in _text(page, "#facts")
    assert "in 1:10, by estimate" in _text(page, "#facts")
    assert "placed on h" in _text(page, "#why")
    assert "deadline" in page.locator("#time svg").first.text_content()
    page.wait_for_selector("#log-text >> text=epoch 1")
    with bed.log("vision").open("a") as file:
        file.write("epoch 2\n")
    page.wait_for_selector("#log-text >> text=epoch 2")
    page.select_option("#log select", "3")
    page.wait_for_selector("#log-text >> text=of rank 3")
    page.screenshot(path=tmp_path / "job.png", full_page=True)
    page.go_back()
    page.wait_for_selector("#tiles")


def test_it_is_used_with_the_keyboard(page: Page, bed: Bed, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("vision")]})
    _open(page, bed)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "#/jobs/vision":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#facts >> text=Cancel")
    page.focus("#facts button")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert http.get("/v1/jobs/vision").json()["state"] == "running", "it was not confirmed"
    page.focus("#facts button")
    page.keyboard.press("Enter")
    page.click("dialog button.strong")
    page.wait_for_selector("#facts >> text=cancelled")


def test_a_server_is_drained_and_used_again(page: Page, bed: Bed, http: httpx.Client) -> None:
    _open(page, bed)
    page.click("button[aria-label='Drain h2']")
    page.click("dialog button.strong")
    page.wait_for_selector("button[aria-label='Undrain h2']")
    assert [each["down"] for each in http.get("/v1/cluster").json()["servers"] if each["name"] == "h2"] == [
        "drained"
    ]
    page.click("button[aria-label='Undrain h2']")
    page.click("dialog button.strong")
    page.wait_for_selector("button[aria-label='Drain h2']")


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "light"), (1400, "dark")]
)
def test_it_fits_narrow_screens_and_dark_ones(
    browser: Browser, bed: Bed, http: httpx.Client, tmp_path: Path, width: int, scheme: str
) -> None:
    jobs = [job(f"a job with quite a long name, number {number}", deadline_s=9e4) for number in range(4)]
    http.post("/v1/jobs", json={"jobs": jobs})
    page, complaints = _page(browser, bed, width=width, scheme=scheme)
    _open(page, bed)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    if width > 1000:  # no table has columns that only scrolling shows
        cut = (
            "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)"
        )
        assert page.evaluate(f"{cut}.map((each) => each.innerText)") == []
    assert page.locator(".scroll:not([tabindex])").count() == 0, "a keyboard scrolls what is cut off"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert sorted(ids) == sorted({*ids})
    light = page.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])") > 128
    assert light is (scheme == "light")
    page.click("#jobs a")
    page.wait_for_selector("#why-body li")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert complaints == []


def test_what_people_name_is_text(page: Page, bed: Bed, http: httpx.Client) -> None:
    name = "<img src=x onerror=document.title=1>"
    http.post("/v1/jobs", json={"jobs": [job(name, command=["<script>document.title=2</script>"])]})
    bed.log(name).write_text("<b>bold</b>")
    _open(page, bed)
    page.click("#jobs a")
    page.wait_for_selector("#log-text >> text=<b>bold</b>")
    assert page.locator("#facts h2").inner_text() == name
    assert page.title() == f"{name} · ina controller"
    assert page.locator("main img, main script, pre b").count() == 0


def test_a_token_is_asked_for_and_kept_nowhere(page: Page, bed: Bed) -> None:
    token = Tokens(bed.folder).add("alice", Role.SUBMITTER)
    page.goto(bed.url)
    page.wait_for_selector("dialog[open] >> text=A token is needed")
    page.fill("#ask-token", "ina_wrong")
    page.click("dialog button.strong")
    page.wait_for_selector("dialog[open] >> text=does not know that token")
    page.fill("#ask-token", token)
    page.click("dialog button.strong")
    page.wait_for_selector("#live.on")
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert token not in page.content()
    assert token not in page.url


def test_a_token_is_given_by_keyboard_alone(page: Page, bed: Bed, tmp_path: Path) -> None:
    """Enter is OK, and who cancels is not asked again at once; the text is for people."""
    token = Tokens(bed.folder).add("alice", Role.SUBMITTER)
    page.goto(bed.url)
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.id") == "ask-token"
    said = _text(page, "dialog")
    assert "shows its jobs to people who have a token" in said
    assert "Authorization" not in said
    page.screenshot(path=tmp_path / "token.png")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Nothing is shown without a token")
    assert page.evaluate("document.activeElement.textContent") == "Give a token"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#live.on")
    page.wait_for_selector("#tiles")


def test_buttons_that_would_be_refused_are_not_shown(page: Page, bed: Bed, http: httpx.Client) -> None:
    """Draining to submitters, using again what nobody has drained, retrying what others have started."""
    asked = {
        "name": "theirs",
        "machines": [{"known_as": ["h1"], "ranks": [0]}],
        "token_sha256": hashlib.sha256(b"theirs").hexdigest(),
    }
    assert http.post("/v1/admissions", json=asked).status_code == 201
    http.post("/v1/jobs", json={"jobs": [job("ours", workers=1)]})
    with Client(bed.url, token="theirs", timeout_s=TIMEOUT_S) as holder:
        holder.leave("theirs", "it was killed")
    bed.fail("ours")
    silent = bed.daemon.ledger.topology.switches[0].name
    bed.world.switches[silent].gone = True
    http.post("/v1/nodes/h2/drain")
    _open(page, bed)
    assert page.locator(f"button[aria-label='Drain {silent}']").count() == 1
    assert page.locator("button[aria-label='Undrain h2']").count() == 1
    for name, buttons in (("theirs", 0), ("ours", 1)):
        page.goto(f"{bed.url}/#/jobs/{name}")
        page.wait_for_selector(f"#facts h2 >> text={name}")
        page.wait_for_selector("#facts >> text=failed")
        assert page.locator("#facts button").count() == buttons, name
    token = Tokens(bed.folder).add("alice", Role.SUBMITTER)
    page.goto(f"{bed.url}/?anew#/")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#nodes td")
    assert page.locator("#nodes button").count() == 0


def test_the_focus_is_where_it_was_after_a_dialog(page: Page, bed: Bed, http: httpx.Client) -> None:
    """Although what had it was drawn again meanwhile."""
    _open(page, bed)
    page.focus("button[aria-label='Drain h2']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    http.post("/v1/jobs", json={"jobs": [job("second")]})
    page.wait_for_selector("#jobs >> text=second")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Drain h2"


def test_measurements_do_not_drown_what_was_decided(page: Page, bed: Bed, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("vision")]})
    for _ in range(400):
        bed.do(lambda: bed.ledger.record([Measured(bed.ledger.now_s, "vision", 0.1, 1_000_000)]))
    assert len(http.get("/v1/events?after=-5").json()["events"]) == 5
    assert len(http.get("/v1/events?after=-5&without=measured").json()["events"]) >= 4
    assert http.get("/v1/events?without=all").status_code == 422
    _open(page, bed)
    assert "submitted vision" in _text(page, "#events")
    assert "measured" not in _text(page, "#events")
    page.click("#jobs a")
    page.wait_for_selector("#why-body li")
    assert "measured" not in _text(page, "#why-body ol")
    page.check("#why-body input")
    page.wait_for_selector("#why-body ol >> text=of computing and 1,000,000 bytes")


LINE = """
[[switch]]
name = "s1"
[[switch]]
name = "s2"
[[switch]]
name = "s3"
[[server]]
name = "h1"
switch = "s1"
gpus = 1
[[server]]
name = "h2"
switch = "s2"
gpus = 1
[[server]]
name = "h3"
switch = "s3"
gpus = 1
[[link]]
a = "s1"
b = "s2"
[[link]]
a = "s2"
b = "s3"
[[link]]
a = "s1"
b = "s3"
"""
CROSSED = """() => {
  const within = (at, from, size) => at > from && at < from + size;
  const inside = (at, box) => within(at.x, box.x, box.width) && within(at.y, box.y, box.height);
  const nodes = [...document.querySelectorAll("#cluster g")].map((g) => [
    g.querySelector("title").textContent.split(":")[0],
    g.querySelector("rect").getBBox(),
  ]);
  return [...document.querySelectorAll("#cluster path")].flatMap((path) => {
    const whole = path.getTotalLength();
    const points = Array.from({ length: 101 }, (_, part) => path.getPointAtLength((whole * part) / 100));
    const others = nodes.filter(([name]) => !path.dataset.ends.split("|").includes(name));
    return others
      .filter(([, box]) => points.some((at) => inside(at, box)))
      .map(([name]) => `${path.dataset.ends} crosses ${name}`);
  });
}"""


@pytest.mark.parametrize("described", [FABRIC, LINE], ids=["leaf-spine", "ring"])
def test_the_picture_draws_no_link_through_a_node(browser: Browser, tmp_path: Path, described: str) -> None:
    topology = parse_topology(described, source="cluster.toml")
    with serving(tmp_path, topology=topology) as bed:
        page, complaints = _page(browser, bed, width=1400)
        _open(page, bed)
        assert page.locator("#cluster path").count() == len(topology.links)
        assert page.evaluate(CROSSED) == []
        page.locator("#cluster").screenshot(path=tmp_path / "cluster.png")
        page.context.close()
    assert complaints == []


def test_a_job_that_is_not_there_is_said(page: Page, bed: Bed) -> None:
    page.goto(f"{bed.url}/#/jobs/none")
    page.wait_for_selector("text=There is no job none")
