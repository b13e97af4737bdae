"""The face of the project: the command `lottery`, and from Python `from lottery import Sweep`.

It sees models, sweep and slurm; none of them sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lottery.api import Sweep

__all__ = ["Sweep"]


def __getattr__(name: str) -> Any:
    """Load `Sweep` where it is asked for: the command, which does not need it, starts sooner."""
    if name == "Sweep":
        from lottery.api import Sweep

        return Sweep
    raise AttributeError(f"module 'lottery' has no attribute {name!r}")
