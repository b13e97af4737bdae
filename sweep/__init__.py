"""The experiment: from one YAML file to dense run, masks, tickets and report. Never asks where it runs."""

import os
import sys
from pathlib import Path

from sweep.greetings import Quietly

# Here, because it must be said before anything imports TensorFlow. Errors that matter are exceptions. It also calls an
# error that there is no GPU, and every compiled program that it finds again, which it tries to read as text first.
if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "3" and sys.stderr:  # who sets another level sees everything
    sys.meta_path.insert(0, Quietly())
if Path("/proc/driver/nvidia/gpus").is_dir():  # on x86 it says twice that oneDNN is on, which has little to do there
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
