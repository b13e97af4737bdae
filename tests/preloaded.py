"""What every command loads of other people's code, seconds of it: loaded once, by the process whose forks run commands.

Nothing of ours: a test must see it load. TensorFlow starts no threads before it computes, so forking it is safe.
"""

import gc
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # as lottery.cli sets it before it loads TensorFlow
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # as sweep does

import altair  # noqa: F401
import cyclopts.completion  # noqa: F401
import h5py  # noqa: F401
import jinja2  # noqa: F401
import PIL.Image  # noqa: F401
import pydantic.json_schema  # noqa: F401
import pynvml  # noqa: F401
import rich.progress
import rich.table  # noqa: F401
import scipy.special
import scipy.stats  # noqa: F401
import submitit  # noqa: F401
import tensorflow  # noqa: F401
import vl_convert  # noqa: F401
import yaml  # noqa: F401

gc.freeze()  # a fork that trains looks through all of this once: 0.3 CPU-seconds
