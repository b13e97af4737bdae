"""The experiment: from one YAML file to dense run, masks, tickets and report. Independent of where it runs."""

import os
import sys
from pathlib import Path

from sweep.greetings import Quietly

# Set before anything imports TensorFlow. Errors that matter are exceptions; TensorFlow also logs as errors that there
# is no GPU, and every cached program, which it first tries to parse as text.
if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "3" and sys.stderr:  # with any other level all is shown
    sys.meta_path.insert(0, Quietly())
if Path("/proc/driver/nvidia/gpus").is_dir():  # avoids two messages about oneDNN, of little use with a GPU
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
