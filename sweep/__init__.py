"""The experiment: from one YAML file to dense run, masks, tickets and report. Never asks where it runs."""

import os
from pathlib import Path

# Here, because it must be said before anything imports TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# On x86 every process says twice, whatever the level, that oneDNN is on; where a GPU trains, it has little to do.
if Path("/proc/driver/nvidia/gpus").is_dir():
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
