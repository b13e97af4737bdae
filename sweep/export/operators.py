"""The XNNPACK operators that a LiteRT file runs, read from LiteRT's own profiler.

Whether a sparse file is computed sparse depends on the processor and on every layer, and LiteRT does not report it. Its
Python interpreter has no profiler; its C interface (libLiteRt.so of the same package) has one.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections import Counter
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path

from sweep.errors import Refused

SPARSE = "SPMM"  # sparse matrix times matrix, in the names of XNNPACK's operators
FLOAT32 = 1


class _Layout(ctypes.Structure):
    _fields_ = [("rank", c_uint32), ("sizes", c_int32 * 8), ("strides", c_uint32 * 8)]


class _Type(ctypes.Structure):
    _fields_ = [("element", c_int), ("layout", _Layout)]


def operators(model: bytes, given: tuple[int, ...], wanted: tuple[int, ...]) -> Counter[str]:
    """Return how often each operator, by name, occurs in a file with float32 input and output.

    `given` and `wanted` are the shapes of its input and output.
    """
    import ai_edge_litert

    library = ctypes.CDLL(str(Path(ai_edge_litert.__file__).parent / "libLiteRt.so"))

    def call(name: str, *arguments: object) -> None:
        if getattr(library, name)(*arguments):
            raise Refused(f"LiteRT: {name} failed, so its operators are not known")

    environment, loaded, options, compiled, profiler = (c_void_p() for _ in range(5))
    kept: list[object] = []  # referenced by the library
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(model)
        file.flush()
        call("LiteRtCreateEnvironment", c_int(0), None, byref(environment))
        call("LiteRtCreateModelFromFile", environment, c_char_p(file.name.encode()), byref(loaded))
        call("LiteRtCreateOptions", byref(options))
        call("LiteRtSetOptionsHardwareAccelerators", options, c_int(1))  # 1: the CPU
        for name, text in (("runtime_options_string", b"enable_profiling = true\n"), ("xnnpack", b"num_threads = 1\n")):
            kept += [ctypes.create_string_buffer(text), ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)]
            option = c_void_p()
            call("LiteRtCreateOpaqueOptions", c_char_p(name.encode()), kept[-2], kept[-1], byref(option))
            call("LiteRtAddOpaqueOptions", options, option)
        call("LiteRtCreateCompiledModel", environment, loaded, options, byref(compiled))
        call("LiteRtCompiledModelGetProfiler", compiled, byref(profiler))
        buffers = []
        for side, shape in (("Input", given), ("Output", wanted)):
            needs, buffer = c_void_p(), c_void_p()
            call(f"LiteRtGetCompiledModel{side}BufferRequirements", compiled, c_size_t(0), c_size_t(0), byref(needs))
            kind = _Type(FLOAT32, _Layout(len(shape), (c_int32 * 8)(*shape)))
            call("LiteRtCreateManagedTensorBufferFromRequirements", environment, byref(kind), needs, byref(buffer))
            buffers.append((c_void_p * 1)(buffer))
        run = ("LiteRtRunCompiledModel", compiled, c_size_t(0), c_size_t(1), buffers[0], c_size_t(1), buffers[1])
        call(*run)
        call("LiteRtStartProfiler", profiler)
        call(*run)
        call("LiteRtStopProfiler", profiler)
        said = c_char_p()
        call("LiteRtGetProfileSummary", profiler, compiled, byref(said))
    return counted((said.value or b"").decode())


def counted(summary: str) -> Counter[str]:
    """Return the counts in the profiler's table of node types.

    >>> counted("Summary by node type\\n [Node type] [count]\\n Delegate/Add (ND)   10  0.007 0.3% 99.9% 0.0 100\\n\\n")
    Counter({'Add (ND)': 10})
    """
    table = summary.partition("Summary by node type")[2].partition("\n\n")[0]
    rows = re.findall(r"^\s*(?:Delegate/)?(\S.*?)\s{2,}(\d+)\s", table, re.MULTILINE)
    return Counter({name: int(count) for name, count in rows})
