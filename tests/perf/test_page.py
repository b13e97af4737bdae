"""How soon the page of a large sweep is alive."""

from __future__ import annotations

import time
from statistics import median

import pytest

from tests.report.test_page import browser, open_page, swept  # noqa: F401 - fixtures

pytestmark = pytest.mark.perf


def test_a_page_of_160_cells(browser, swept, figure):  # noqa: F811
    open_page(browser, swept)  # the browser's own start is not the page's
    took = []
    for _ in range(5):
        began = time.monotonic()
        open_page(browser, swept)
        took.append(time.monotonic() - began)
    figure("a page of 160 cells is alive", median(took), "s", at_most=2)
