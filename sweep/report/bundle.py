"""The JavaScript library that draws the figures of the page, as one script inside the page.

Making it takes seconds and it is the same for every page, so it is kept in the user's cache, after its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from importlib import metadata
from pathlib import Path

from sweep import files


def bundle() -> str:
    """Return the script, from the user's cache if it is there undamaged."""
    import vl_convert

    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lottery-sweep"
    kept = cache / f"vega-{metadata.version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        checksum, _, script = kept.read_text().partition("\n")
        if checksum == _checksum(script):
            return script
    script = inside_script(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed"))
    with contextlib.suppress(OSError):  # if the cache cannot be written, it is made again the next time
        cache.mkdir(parents=True, exist_ok=True)
        files.write_text(kept, f"{_checksum(script)}\n{script}")
    return script


def _checksum(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


def inside_script(text: str) -> str:
    """Return a text that can be put into a script element: `</script>` in it would end the script."""
    return re.sub(r"</(?=script)", r"<\\/", text, flags=re.IGNORECASE)
