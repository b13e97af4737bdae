"""The entry point of the command `lottery`: while modules are loaded, Ctrl-C ends it at once."""

import signal
import sys


def main() -> int:
    at_start = signal.getsignal(signal.SIGINT)
    if at_start is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lottery import cli

    signal.signal(signal.SIGINT, at_start)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
