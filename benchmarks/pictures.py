"""Pictures of a report's page for the docs, wide, on a phone and dark.

    python benchmarks/pictures.py report.html NAME [PIXELS, from the top]

Needs Chromium and its driver; NAME-wide.png, NAME-phone.png and NAME-dark.png go to docs/images.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import time
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
VIEWS = {"wide": (1000, "light"), "phone": (390, "light"), "dark": (1000, "dark")}


def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for word in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    return webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))


def picture(driver, page: Path, width: int, scheme: str, tall: int) -> bytes:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(page.resolve().as_uri())
    for _ in range(600):
        if driver.execute_script("return document.body.dataset.ready") == "yes":
            break
        time.sleep(0.1)
    else:
        raise TimeoutError(f"{page}: its figures do not stand after a minute")
    height = min(tall, driver.execute_script("return document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    words = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", words)["data"])


def small(png: bytes) -> bytes:
    """256 colours are enough for it, and half of the bytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    page, name = Path(sys.argv[1]), sys.argv[2]
    tall = int(sys.argv[3]) if len(sys.argv) > 3 else 5000
    driver = browser()
    try:
        for view, (width, scheme) in VIEWS.items():
            path = IMAGES / f"{name}-{view}.png"
            path.write_bytes(small(picture(driver, page, width, scheme, tall)))
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    finally:
        driver.quit()
