"""The experiment: from one YAML file to dense run, masks, tickets and report. Never asks where it runs."""

import os
from pathlib import Path

# Here, because it must be said before anything imports TensorFlow. Errors that matter are exceptions. It also calls an
# error that there is no GPU, and every compiled program that it finds again, which it tries to read as text first.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if Path("/proc/driver/nvidia/gpus").is_dir():  # on x86 it says twice that oneDNN is on, which has little to do there
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
