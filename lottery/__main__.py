"""The entry point of the command `lottery`: while modules are loaded, Ctrl-C ends it at once."""

import gc
import signal
import sys

# By default every 700 objects: loading TensorFlow makes a million that stay, and took 4.5 s of a core where it takes
# 3.9 now (means of six in turn, 2 x86-64 cores, 2026-11-18). Here, because worker processes load this module again.
gc.set_threshold(50_000)


def main() -> int:
    at_start = signal.getsignal(signal.SIGINT)
    if at_start is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lottery import cli

    signal.signal(signal.SIGINT, at_start)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
