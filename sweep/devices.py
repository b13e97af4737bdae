"""The devices of a training, as a `tf.distribute` strategy.

On CPU every operation runs on one thread, and independent operations run in parallel. Splitting one operation over
threads would make its rounding depend on their number; this way the bits do not depend on the machine's cores, at the
same speed (width 0.35, 8 px, batch 64 on 2 cores: 60 ms a step, against 63 ms with two threads per operation).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sweep.errors import Refused
from sweep.hardware import gpu_memory, gpu_name
from sweep.progress import console

LOGICAL_GPU_MIB = 8192  # memory of a logical part of a GPU, for tests with several replicas


@dataclass(frozen=True)
class Devices:
    strategy: Any  # tf.distribute.Strategy
    replicas: int
    kind: str  # "GPU" or "CPU"
    nccl: bool = False  # needs one device per GPU; without it one device sums for all
    sharing: int = 1  # trainings on each device at the same time

    @property
    def memory(self) -> int:
        """Return the bytes of memory of each GPU; 0 on CPUs."""
        if self.kind == "CPU":
            return 0
        return gpu_memory() if self.nccl else LOGICAL_GPU_MIB << 20

    @property
    def used(self) -> int:
        """Return the bytes of the first GPU's memory that this process uses; 0 on CPUs."""
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"]) if self.kind == "GPU" else 0

    @property
    def cores(self) -> int:
        """Return the CPU cores that a training may use; 0 on GPUs."""
        return int(tf.config.threading.get_inter_op_parallelism_threads()) if self.kind == "CPU" else 0

    def __str__(self) -> str:
        return f"{self.replicas} × {self.kind}" if self.replicas > 1 else f"one {self.kind}"


_prepared: dict[int, Devices] = {}  # TensorFlow's devices can be set up once per process


def prepare(count: int = 0, threads: int = 0) -> Devices:
    """Return `count` devices; 0 = all visible GPUs, or one CPU. If there are fewer, the first one is split.

    `threads`: operations that run in parallel on a CPU; 0 = its cores. It changes the speed, never the result.
    """
    if count not in _prepared:
        if _prepared:
            raise Refused(f"--devices {count}: this process already trains on {next(iter(_prepared.values()))}")
        _prepared[count] = _set_up(count, threads)
    return _prepared[count]


def _set_up(count: int, threads: int) -> Devices:
    tf.get_logger().setLevel("ERROR")  # no warnings about retracing: a search traces many programs
    gpus = tf.config.list_physical_devices("GPU")
    kind = "GPU" if gpus else "CPU"
    if not gpus and gpu_name():
        console.print(f"WARNING: {gpu_name()} is here, and TensorFlow does not see it: this trains on the CPU")
    physical = gpus or tf.config.list_physical_devices("CPU")
    replicas = count or len(physical)
    if kind == "CPU":
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(threads or os.cpu_count() or 1)
        tf.config.experimental.enable_op_determinism()
    logical = replicas > len(physical)
    if logical:
        memory = None if kind == "CPU" else LOGICAL_GPU_MIB
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=memory) for _ in range(replicas)]
        tf.config.set_logical_device_configuration(physical[0], parts)
    elif kind == "GPU":
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    return _over(replicas, kind, nccl=kind == "GPU" and not logical)


def first(devices: Devices, count: int) -> Devices:
    """Return the first `count` of the devices."""
    return _over(count, devices.kind, devices.nccl) if count < devices.replicas else devices


def _over(replicas: int, kind: str, nccl: bool) -> Devices:
    if replicas == 1:
        return Devices(tf.distribute.OneDeviceStrategy(f"/{kind}:0"), 1, kind, nccl)
    names = [f"/{kind}:{i}" for i in range(replicas)]
    reduction = None if nccl else tf.distribute.ReductionToOneDevice()
    return Devices(tf.distribute.MirroredStrategy(names, cross_device_ops=reduction), replicas, kind, nccl)
