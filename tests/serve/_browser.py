"""The system's Chromium, and pages whose requests and errors are recorded."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.serve._server import Running

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing waits for a clock: this is how long a broken page may take to fail.
PATIENCE = 60_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; fails where none is installed."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(
            "Chromium was not found, which the tests of the page need. Install it with\n"
            "    sudo apt-get install chromium            (Debian)\n"
            "    sudo apt-get install chromium-browser    (Ubuntu)\n"
            "    sudo dnf install chromium                (Fedora)\n"
            "    brew install --cask chromium             (macOS)",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        # The sandbox needs rights that containers don't have; the only pages are ours.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Tab:
    """A page of the browser, with its requests and what its console says."""

    def __init__(self, browser: Browser, running: Running, token: str | None, **options: Any) -> None:
        self.running = running
        self.requests: list[Any] = []
        self.errors: list[str] = []
        self.statuses: list[int] = []
        chosen: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        self.context = browser.new_context(**{**chosen, **options})
        self.context.set_default_timeout(PATIENCE)
        if token is not None:
            self.context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        self.page: Page = self.context.new_page()
        # The library marks its handlers, which a method of a list does not permit.
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("response", lambda answer: self.statuses.append(answer.status))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)

    def _note(self, message: Any) -> None:
        # The browser itself reports each refused request; which ones are refused is up to the test.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def open(self, address: str = "") -> Page:
        """Go to an address of the page, such as ``lake=events``."""
        self.page.goto(f"{self.running.uri}/#{address}")
        return self.page

    def asked(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the questions to an endpoint."""
        return [one.post_data_json for one in self.requests if one.url.endswith(path)]


@contextmanager
def tab(
    browser: Browser,
    running: Running,
    token: str | None = "dora",
    refused: Collection[int] = (),
    **options: Any,
) -> Iterator[Tab]:
    """A tab of its own; at the end it has asked nobody but the server, and nothing went wrong.

    ``refused`` are the statuses by which the server may refuse requests.
    """
    one = Tab(browser, running, token, **options)
    try:
        yield one
        assert one.errors == []
        assert one.requests
        foreign = [request.url for request in one.requests if not request.url.startswith(f"{running.uri}/")]
        assert foreign == []
        assert {status for status in one.statuses if status >= 400} <= {*refused}
    finally:
        one.context.close()
