"""PyTorch's element types and values as those of the Graph."""

import torch

from kernelwright.capture.errors import UnsupportedValueError
from kernelwright.capture.sizes import Sizes
from kernelwright.ir.types import DType, NoneType, ScalarType, TensorType, TupleType, ValueType

_DTYPES = {
    torch.float64: DType.F64,
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
    torch.complex64: DType.C64,
    torch.complex128: DType.C128,
}


def dtype_of(dtype: torch.dtype) -> DType:
    """The Graph's name of an element type; UnsupportedValueError where it has none."""
    if dtype not in _DTYPES:
        raise UnsupportedValueError(f"tensors of {dtype} are not supported")
    return _DTYPES[dtype]


def type_of(value: object, sizes: Sizes) -> ValueType:
    """The type of a traced value: a fake tensor, a number, None, or a tuple or list of them."""
    match value:
        case torch.Tensor():
            shape = tuple(sizes.dim(size) for size in value.shape)
            return TensorType(dtype_of(value.dtype), shape)
        case tuple() | list():
            return TupleType(tuple(type_of(item, sizes) for item in value))
        case None:
            return NoneType()
        case bool() | torch.SymBool():
            return ScalarType(DType.BOOL)
        case int() | torch.SymInt():
            return ScalarType(DType.I64)
        case float() | torch.SymFloat():
            return ScalarType(DType.F64)
    raise UnsupportedValueError(f"a {type(value).__name__} is no value of a graph")
