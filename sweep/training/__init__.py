"""How one network is trained: schedule, compiled step, loop."""
