"""The training of one network: schedule, compiled step, loop, evaluation."""
