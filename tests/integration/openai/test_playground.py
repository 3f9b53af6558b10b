"""The playground in a real browser: it chats, colours tokens by source, draws rounds, and trusts no text."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.fake_shards import Fault
from tests.fakes import FakeDraft, Target
from tests.integration.openai.conftest import answering, http, serving
from tests.integration.orchestrator.conftest import StartDraft
from tests.orchestrating import until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
TEXT = "Well, <b>bold</b><img src=x onerror=document.title='broken'> 川 & so on."

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="no chromium with its driver (Debian: chromium-driver)"
    ),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


class Page:
    """The playground as its user sees it; all calls block, so they run in a thread."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)
        self.until("#model.ready")

    def until(self, selector: str) -> None:
        WebDriverWait(self.driver, 5, 0.02).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, selector))

    def text(self, selector: str) -> str:
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).get_property("textContent"))

    def count(self, selector: str) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def say(self, text: str) -> None:
        self.driver.find_element(By.ID, "prompt").send_keys(text, Keys.ENTER)

    def ask(self, text: str) -> None:
        """Says it and waits for the end of the answer."""
        before = self.count(".note")
        self.say(text)
        WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.count(".note") > before)

    def complaints(self) -> list[str]:
        """What the browser's console holds against the page."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield Page(driver)
    driver.quit()


async def test_an_answer(model: Path, start_draft: StartDraft, page: Page) -> None:
    script = answering(TEXT)
    draft = await start_draft(FakeDraft(lambda ids: script(ids) if len(ids) % 7 else 33))

    def drive(url: str) -> None:
        page.open(url)
        page.driver.find_element(By.CSS_SELECTOR, "[value='linear:4']").send_keys(" ")
        page.ask("hi")

    async with serving(script) as target, http(model, target, draft) as api:
        await asyncio.to_thread(drive, api.url)
        answer = (await api.chat(shardflow={"speculation": "linear:4", "rounds": True})).json()
    assert page.text(".assistant .text") == TEXT
    assert (page.count(".assistant b, .assistant img"), page.driver.title) == (0, "ShardFlow playground")
    rounds = answer["shardflow"]["rounds"]
    sources = [token["source"] for each in rounds for token in each["tokens"]]
    counts = {source: sources.count(source) for source in ("accepted", "corrected", "bonus", "target")}
    assert {source: int(page.text(f"#count-{source}")) for source in counts} == counts
    assert counts["accepted"] > 20 and counts["corrected"] > 5 and counts["bonus"] > 1
    shown = [
        token.get_dom_attribute("data-source") for token in page.driver.find_elements(By.CSS_SELECTOR, ".text .token")
    ]
    assert shown == [token["source"] for each in rounds for token in each["tokens"] if token["text"]]
    assert page.count(".bar") == len(rounds) - 1  # all but the prefill
    assert page.count(".bar i") == 5 * (len(rounds) - 1)  # network, draft, two shards, rest
    assert [item.text for item in page.driver.find_elements(By.CSS_SELECTOR, "#parts li")] == [
        "network", "draft", "shard-0", "shard-1", "rest",
    ]  # fmt: skip
    drafted = sum(each["drafted_tokens"] for each in rounds)
    assert page.text("#accepted-value") == f"{round(100 * counts['accepted'] / drafted)} %"
    assert float(page.text("#speed-value")) > 0
    assert page.text(".note").startswith(f"linear:4 · {len(sources)} tokens in {len(rounds)} rounds, ")
    assert page.complaints() == []


async def test_the_deployments_own_mode_is_chosen_at_first(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> None:
        page.open(url)
        page.ask("hi")

    async with http(model, target, speculation="linear:2") as api:
        await asyncio.to_thread(drive, api.url)
    assert [label.text for label in page.driver.find_elements(By.CSS_SELECTOR, "#speculation label")] == [
        "none", "linear:4", "tree:31", "lookup", "auto", "linear:2",
    ]  # fmt: skip
    assert page.driver.find_element(By.CSS_SELECTOR, "[name=mode]:checked").get_dom_attribute("value") == "linear:2"
    assert page.text(".note").startswith("linear:2 · ")


async def test_the_arrow_keys_choose_a_round(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> list[str]:
        page.open(url)
        page.driver.find_element(By.ID, "max_tokens").send_keys(Keys.CONTROL, "a", Keys.NULL, "6")
        page.ask("hi")
        chart = page.driver.find_element(By.ID, "chart")
        seen = [page.text("#detail")]
        for key in (Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT):
            chart.send_keys(key)
            seen.append(page.text("#detail"))
        return seen

    async with http(model, target) as api:
        seen = await asyncio.to_thread(drive, api.url)
    assert [text.partition(":")[0] for text in seen] == ["Round 6", "Round 6", "Round 5", "Round 6"]


async def test_the_conversation_goes_on_and_starts_afresh(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> None:
        page.open(url)
        page.driver.find_element(By.ID, "max_tokens").send_keys(Keys.CONTROL, "a", Keys.NULL, "4")
        page.ask("one")
        page.ask("two")
        page.driver.find_element(By.ID, "fresh").click()
        page.ask("three")

    async with http(model, target) as api:
        await asyncio.to_thread(drive, api.url)
    prompts: dict[str, bytes] = {}
    for piece in target.last.slices:  # a prompt comes in several, the last of which wants a verdict
        if piece.base == len(prompts.get(piece.session, b"")) and piece.base % 32 == 0:
            prompts[piece.session] = prompts.get(piece.session, b"") + bytes(piece.tokens)
    one, two, three = prompts.values()
    assert (one, three) == (b"user: one\n> ", b"user: three\n> ")
    assert two.startswith(b"user: one\nassistant: ") and two.endswith(b"\nuser: two\n> ")


async def test_no_text_is_markup(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> None:
        page.open(url)
        page.ask("<b>hi</b>")

    async with http(model, target) as api:
        await asyncio.to_thread(drive, api.url)
    assert (page.text(".user"), page.count(".message b")) == ("<b>hi</b>", 0)


async def test_a_failure_in_mid_answer_is_shown(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> None:
        page.open(url)
        page.ask("hi")

    target.last.faults[3] = Fault.NON_FINITE
    async with http(model, target) as api:
        await asyncio.to_thread(drive, api.url)
    assert page.text(".error") == "shard-1: says INTERNAL"
    assert len(page.text(".assistant .text")) == 3


async def test_stopping_frees_the_session(model: Path, target: Target, page: Page) -> None:
    target.last.faults[3] = Fault.LOSE
    async with http(model, target, round_timeout_s=10) as api:
        await asyncio.to_thread(page.open, api.url)
        await asyncio.to_thread(page.say, "hi")
        await until(lambda: len(target.last.slices) == 4)
        await asyncio.to_thread(page.driver.find_element(By.ID, "send").click)
        await until(lambda: not target.last.sessions)
    assert page.text(".note").endswith("stopped")
    assert page.text("#send") == "Send"


async def test_a_key_is_asked_for_where_one_is_needed(model: Path, target: Target, page: Page) -> None:
    def drive(url: str) -> None:
        page.driver.get(url)
        page.until("#key-field:not([hidden])")
        page.driver.find_element(By.ID, "key").send_keys("one")
        page.until("#model.ready")
        page.ask("hi")

    async with http(model, target, http_api_keys="one") as api:
        await asyncio.to_thread(drive, api.url)
    assert page.count(".error") == 0


async def test_a_phone_shows_all_of_it(model: Path, target: Target, page: Page) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}

    def drive(url: str) -> None:
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.open(url)
        page.ask("hi " * 40)
        page.driver.find_element(By.CSS_SELECTOR, "summary").click()

    async with http(model, target) as api:
        await asyncio.to_thread(drive, api.url)
    try:
        assert page.driver.execute_script("return document.documentElement.scrollWidth") == 360
        send = page.driver.find_element(By.ID, "send").rect
        assert send["x"] + send["width"] <= 360 and send["y"] + send["height"] <= 740
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


async def test_only_the_page_itself_may_run_in_it(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        response = await api.client.get("/")
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert all(policy[kind].startswith("'sha256-") for kind in ("script-src", "style-src"))
    assert "http://" not in response.text and "https://" not in response.text  # no outside asset
