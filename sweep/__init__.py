"""The experiment: from one YAML file to dense run, masks, tickets and report. Never asks where it runs."""

import os
from pathlib import Path

# Here, because it must be said before anything imports TensorFlow.
if Path("/proc/driver/nvidia/gpus").is_dir():
    # Errors that matter are exceptions. It also reports as an error every compiled program that it finds again, which
    # it tries to read as text first; and on x86, twice a process, that oneDNN is on, which has little to do here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
