"""What ends a command with one clear line instead of a traceback."""


class Refused(Exception):
    """Input that cannot be used. The text says what, where, and what would be right. Exit status 2."""


class Diverged(Exception):
    """The loss of a training stopped being a number. The cell fails; the others go on."""


class Stuck(Exception):
    """A task was begun too often without getting further. It fails; the others go on."""


class Interrupted(Exception):
    """A stop was asked for; the training was saved and can be continued."""


class Busy(Exception):
    """Another process trains this now."""
