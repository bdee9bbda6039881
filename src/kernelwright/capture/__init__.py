"""Trace a module into a Graph; the only room that knows PyTorch's operators by name.

from kernelwright.capture import capture
from kernelwright.problem import load_problem

graph = capture(load_problem("model.py"))
print(graph)
"""

from kernelwright.capture.capturing import capture, capture_module
from kernelwright.capture.errors import CaptureError, UnsupportedValueError, WrongArgumentsError

__all__ = [
    "CaptureError",
    "UnsupportedValueError",
    "WrongArgumentsError",
    "capture",
    "capture_module",
]
