"""One task done."""
