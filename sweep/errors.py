"""Exceptions that end a command with one clear line instead of a traceback, and the parts of such lines."""

import difflib
import reprlib
import shlex
from collections.abc import Iterable
from typing import Any

_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxlevel, _BRIEFLY.maxdict, _BRIEFLY.maxstring, _BRIEFLY.maxother, _BRIEFLY.maxlong = 3, 4, 80, 80, 40


def brief(value: Any) -> str:
    """Return a short representation of a value for an error message."""
    return cut(_BRIEFLY.repr(value))


def cut(text: str) -> str:
    """Return the text, or its beginning and "..." if it has more than 120 characters."""
    return text if len(text) <= 120 else f"{text[:117]}..."


def some(names: list[str]) -> str:
    """Return names separated by commas, shortened if there are more than 12."""
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10} more"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if the word is like a known one, else the known ones."""
    known = list(known)
    if not known:
        return ""
    similar = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {similar[0]}?" if similar else f"; there are {some(known)}"


class Refused(Exception):
    """Input that cannot be used. The text says what, where and what would be right, per mistake. Exit status 2."""


class Diverged(Exception):
    """The loss of a training is not finite any more. The training fails; others continue."""


class Stuck(Exception):
    """A task was started too often without progress. It fails; others continue."""


class Interrupted(Exception):
    """A stop was requested; the training was saved and can be continued."""


class Superseded(Interrupted):
    """Another process has taken over the training; this one leaves it alone."""


class Busy(Exception):
    """Another process is training this now."""


def command(*words: object) -> str:
    """Return a `lottery` command quoted for a shell, so that it can be pasted.

    >>> command("status", "a $(b)", "--watch")
    "lottery status 'a $(b)' --watch"
    """
    return shlex.join(["lottery", *map(str, words)])
