"""Fixtures and hooks of the reader's tests, which conftest.py imports."""

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import shutil
from typing import Any

import pytest
from reader_helpers import fuzz_seed
from trace_reader import guard

guard.raises = True
# No test depends on what its user keeps of this machine; programs that a test runs inherit it.
os.environ["READ_TRACE_CACHE"] = os.devnull


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium, without a window; skips, with the reason, where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page by file:// and returns it, once its scripts are done. At the end: nothing was asked of any other address, and
    nothing was complained of.
    """
    contexts, complaints, asked = [], [], []

    def complain(message: Any) -> None:
        if not message.text.startswith("Canvas2D:"):  # reading pixels back is the tests' own doing
            complaints.append(message.text)

    def open_page(path: Path, wait: str = "html[data-ready]", **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(wait, state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith("file://")] == []


@pytest.hookimpl(tryfirst=True)  # before those that are asked for are chosen by their marks
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """What is opened in a browser is slow by its nature."""
    for item in items:
        if "opened" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_report_header():
    return f"fuzz seed: {fuzz_seed()}"
