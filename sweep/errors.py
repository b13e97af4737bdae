"""What ends a command with one clear line instead of a traceback."""

import difflib
import reprlib
import shlex
from collections.abc import Iterable
from typing import Any

_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxlevel, _BRIEFLY.maxdict, _BRIEFLY.maxstring, _BRIEFLY.maxother, _BRIEFLY.maxlong = 3, 4, 80, 80, 40


def brief(value: Any) -> str:
    """A value for the line that refuses it: cut short before it is made."""
    return cut(_BRIEFLY.repr(value))


def cut(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def some(names: list[str]) -> str:
    """Return as many names as fit in a line."""
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10} more"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for a word that is like a known one, or else what there is."""
    known = list(known)
    if not known:
        return ""
    similar = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {similar[0]}?" if similar else f"; there are {some(known)}"


class Refused(Exception):
    """Input that cannot be used. The text says what, where, and what would be right, in a line for each mistake. Exit
    status 2."""


class Diverged(Exception):
    """The loss of a training stopped being a number. The training fails; the others go on."""


class Stuck(Exception):
    """A task was begun too often without getting further. It fails; the others go on."""


class Interrupted(Exception):
    """A stop was asked for; the training was saved and can be continued."""


class Superseded(Interrupted):
    """The training was begun again elsewhere in the meantime; this process leaves it alone."""


class Busy(Exception):
    """Another process trains this now."""


def command(*words: object) -> str:
    """Return a `lottery` command as a shell reads it, so that a person can paste it whatever a folder is called.

    >>> command("status", "a $(b)", "--watch")
    "lottery status 'a $(b)' --watch"
    """
    return shlex.join(["lottery", *map(str, words)])
