"""The user interface: the command `lottery`, and from Python `from lottery import Sweep`.

It imports models, sweep and slurm; none of them imports it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lottery.api import Sweep

__all__ = ["Sweep"]


def __getattr__(name: str) -> Any:
    """Return `Sweep`, imported on first use, so that the command, which does not need it, starts sooner."""
    if name == "Sweep":
        from lottery.api import Sweep

        return Sweep
    raise AttributeError(f"module 'lottery' has no attribute {name!r}")
