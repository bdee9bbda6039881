"""The PTX instructions that the emulator knows, as C++.

    row("ld.global.nc.L1::no_allocate.v2.f32", 3)    "::kwemu::ptx::load_global({all})"
    row("fma.rn.ftz.f32", 4)                         "{0} = __fmaf_rn({1}, {2}, {3})"

Instruction set: https://docs.nvidia.com/cuda/parallel-thread-execution/
"""

from collections.abc import Iterator, Mapping
from string import Formatter
from types import MappingProxyType

from kernelwright.emulator.ptx_hopper import (
    CLUSTER_INDEX_REGISTERS,
    CLUSTER_REGISTERS,
    HOPPER_ROWS,
    hopper_key,
)

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "pred": "bool",
        "b8": "unsigned char",
        "u8": "unsigned char",
        "s8": "signed char",
        "b16": "unsigned short",
        "u16": "unsigned short",
        "s16": "short",
        "b32": "unsigned int",
        "u32": "unsigned int",
        "s32": "int",
        "b64": "unsigned long long",
        "u64": "unsigned long long",
        "s64": "long long",
        "f32": "float",
        "f64": "double",
    }
)
"""What a register of a PTX type holds, in C++."""

_LANE = "(kwemu_linear_thread() % 32)"
SPECIAL_REGISTERS: Mapping[str, str] = MappingProxyType(
    {
        "laneid": _LANE,
        "warpid": "(kwemu_linear_thread() / 32)",
        "nwarpid": "((blockDim.x * blockDim.y * blockDim.z + 31) / 32)",
        "clock": "static_cast<unsigned int>(kwemu_clock())",
        "clock64": "kwemu_clock()",
        "globaltimer": "kwemu_clock()",
        "lanemask_eq": f"(1u << {_LANE})",
        "lanemask_lt": f"((1u << {_LANE}) - 1u)",
        "lanemask_le": f"((2u << {_LANE}) - 1u)",
        "lanemask_gt": f"~((2u << {_LANE}) - 1u)",
        "lanemask_ge": f"~((1u << {_LANE}) - 1u)",
        **CLUSTER_REGISTERS,
    }
)
"""`%name`; those that tell of the device's state, as %smid, have no meaning here."""

INDEX_REGISTERS: Mapping[str, str] = MappingProxyType(
    {
        "tid": "threadIdx",
        "ntid": "blockDim",
        "ctaid": "blockIdx",
        "nctaid": "gridDim",
        **CLUSTER_INDEX_REGISTERS,
    }
)
"""`%name.x` and its sisters."""

_HINTS = frozenset(
    {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "volatile", "relaxed"}
    | {"sync", "aligned", "uni", "cta", "gpu", "sys", "ftz", "v2", "v4"}
)
"""Modifiers that say how fast, how widely visible or how many, not what is computed."""


def row(mnemonic: str, operands: int) -> str | None:
    """The C++ expression of an instruction with so many operands, None if there is none.

    The operands are `{0}`, `{1}`, ..., or `{all}` with commas between them.
    """
    parts = [part.removesuffix("::cta") for part in mnemonic.split(".")]
    named = [part for part in parts if "::" not in part and part != "aligned"]
    plain = [part for part in named if part not in _HINTS]
    untyped = plain[:-1] if plain[-1:] and plain[-1] in TYPES else plain
    hopper = hopper_key(mnemonic)
    keys = [".".join(key) for key in (named, plain, untyped)]
    for key in (f"{hopper} {operands}", hopper, *keys):
        if key in _ROWS:
            return _ROWS[key] if _takes(_ROWS[key], operands) else None
    return None


def _takes(expression: str, operands: int) -> bool:
    """Whether the expression uses each of so many operands and no others."""
    fields = {field for _, field, _, _ in Formatter().parse(expression) if field is not None}
    return fields == {"all"} or fields == {str(operand) for operand in range(operands)}


def _calls() -> Iterator[tuple[str, str]]:
    """Instructions with a function of kwemu/ptx.h of their own."""
    functions = {
        "cp.async.cg.shared.global": "cp_async_cg_shared_global",
        "cp.async.ca.shared.global": "cp_async_ca_shared_global",
        "cp.async.commit_group": "cp_async_commit_group",
        "cp.async.wait_group": "cp_async_wait_group",
        "cp.async.wait_all": "cp_async_wait_all",
        "ld": "load_global",
        "ld.global": "load_global",
        "ld.shared": "load_shared",
        "st": "store_global",
        "st.global": "store_global",
        "st.shared": "store_shared",
        "mma.sync.m16n8k16.row.col.f32.f16.f16.f32": "multiply_16x8x16<false>",
        "mma.sync.m16n8k16.row.col.f32.bf16.bf16.f32": "multiply_16x8x16<true>",
        "movmatrix.sync.m8n8.trans.b16": "transpose_8x8",
        "createpolicy.fractional": "create_policy",
        "prefetch.L1": "prefetch_global_L1",
        "prefetch.L2": "prefetch_global_L2",
        "prefetch.global.L1": "prefetch_global_L1",
        "prefetch.global.L2": "prefetch_global_L2",
        "bar.sync": "bar_sync",
        "bar.arrive": "bar_arrive",
        "bar.warp.sync": "bar_warp_sync",
        "barrier.sync": "bar_sync",
        "barrier.arrive": "bar_arrive",
        "barrier.cta.sync": "bar_sync",
        "barrier.cta.arrive": "bar_arrive",
        "membar.cta": "membar_cta",
        "membar.gl": "membar_gl",
        "membar.sys": "membar_gl",
    }
    for instruction, function in functions.items():
        yield instruction, f"::kwemu::ptx::{function}({{all}})"
    for order in ("acq_rel", "sc"):
        for reach in ("cta", "gpu", "sys"):
            yield f"fence.{order}.{reach}", "kwemu_fence()"


def _narrow_memory() -> Iterator[tuple[str, str]]:
    """Loads and stores of fewer bits than their register has."""
    for name in ("b8", "u8", "s8", "b16", "u16", "s16"):
        for suffix, function in (("", "global"), (".global", "global"), (".shared", "shared")):
            yield (
                f"ld{suffix}.{name}",
                f"__extension__({{{{ {TYPES[name]} kwemu_value; "
                f"::kwemu::ptx::load_{function}(kwemu_value, {{1}}); {{0}} = kwemu_value; }}}})",
            )
            yield (
                f"st{suffix}.{name}",
                f"::kwemu::ptx::store_{function}({{0}}, ({TYPES[name]})({{1}}))",
            )


def _arithmetic() -> Iterator[tuple[str, str]]:
    """Arithmetic and logic of each type."""
    binary = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "mul.lo": "*"}
    compared = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, type_ in TYPES.items():
        first, second, third = (f"({type_})({{{operand}}})" for operand in (1, 2, 3))
        for instruction, operator in binary.items():
            yield f"{instruction}.{name}", f"{{0}} = {first} {operator} {second}"
        for instruction, operator in compared.items():
            yield f"setp.{instruction}.{name}", f"{{0}} = {first} {operator} {second}"
        yield f"min.{name}", f"{{0}} = min({first}, {second})"
        yield f"max.{name}", f"{{0}} = max({first}, {second})"
        yield f"neg.{name}", f"{{0}} = -{first}"
        yield f"not.{name}", f"{{0}} = ~{first}"
        yield f"mad.lo.{name}", f"{{0}} = {first} * {second} + {third}"
        yield f"selp.{name}", "{0} = ({3}) ? ({1}) : ({2})"
        yield f"shl.{name}", f"{{0}} = ({{2}}) < 8 * sizeof({type_}) ? {first} << ({{2}}) : 0"
        yield f"mov.{name}", "{0} = ::kwemu::from_bits<__typeof__({0})>(::kwemu::to_bits({1}))"
    for extremum, operator in (("max", ">"), ("min", "<")):
        yield (
            f"{extremum}.NaN.f32",
            f"{{0}} = ({{1}}) {operator} ({{2}}) || ({{1}}) != ({{1}}) ? ({{1}}) : ({{2}})",
        )
    for wide, narrow in (("s64", "s32"), ("u64", "u32"), ("u32", "u64"), ("s32", "s64")):
        yield f"cvt.{wide}.{narrow}", f"{{0}} = ({TYPES[wide]})({TYPES[narrow]})({{1}})"
    for narrow in ("s32", "u32"):
        wide = narrow.replace("32", "64")
        yield f"mul.wide.{narrow}", f"{{0}} = ({TYPES[wide]})({{1}}) * ({TYPES[narrow]})({{2}})"
        yield f"cvt.rn.f32.{narrow}", f"{{0}} = (float)({TYPES[narrow]})({{1}})"


_REAL = {
    "fma.rn.f32": "{0} = __fmaf_rn({1}, {2}, {3})",
    "fma.rn.f64": "{0} = __fma_rn({1}, {2}, {3})",
    "add.rn.f32": "{0} = __fadd_rn({1}, {2})",
    "sub.rn.f32": "{0} = __fsub_rn({1}, {2})",
    "mul.f32": "{0} = __fmul_rn({1}, {2})",
    "mul.rn.f32": "{0} = __fmul_rn({1}, {2})",
    "div.rn.f32": "{0} = __fdiv_rn({1}, {2})",
    "div.full.f32": "{0} = __fdividef({1}, {2})",
    "div.approx.f32": "{0} = __fdividef({1}, {2})",
    "rcp.rn.f32": "{0} = __frcp_rn({1})",
    "rcp.approx.f32": "{0} = __frcp_rn({1})",
    "sqrt.rn.f32": "{0} = __fsqrt_rn({1})",
    "sqrt.approx.f32": "{0} = __fsqrt_rn({1})",
    "rsqrt.approx.f32": "{0} = __frsqrt_rn({1})",
    "ex2.approx.f32": "{0} = exp2f({1})",
    "ex2.approx.ftz.f32": "{0} = exp2f({1})",
    "lg2.approx.f32": "{0} = log2f({1})",
    "sin.approx.f32": "{0} = sinf({1})",
    "cos.approx.f32": "{0} = cosf({1})",
    "tanh.approx.f32": "{0} = tanhf({1})",
    "abs.f32": "{0} = fabsf({1})",
    "cvt.rna.tf32.f32": "{0} = ::kwemu::from_bits<__typeof__({0})>("
    "(__float_as_uint({1}) + 0x1000u) & 0xffffe000u)",
    "cvt.rzi.s32.f32": "{0} = __float2int_rz({1})",
    "cvt.rni.s32.f32": "{0} = __float2int_rn({1})",
}
"""What a GPU approximates is computed as well as the host can."""

_BITS = {
    "popc.b32": "{0} = __popc({1})",
    "clz.b32": "{0} = __clz({1})",
    "brev.b32": "{0} = __brev({1})",
    "prmt.b32": "{0} = __byte_perm({1}, {2}, {3})",
    "shf.l.wrap.b32": "{0} = __funnelshift_l({1}, {2}, {3})",
    "shf.r.wrap.b32": "{0} = __funnelshift_r({1}, {2}, {3})",
    "mul.hi.s32": "{0} = __mulhi({1}, {2})",
    "mul.hi.u32": "{0} = __umulhi({1}, {2})",
    "cvta.to.shared.u64": "{0} = __cvta_generic_to_shared((const void*)({1}))",
    "cvta.to.global.u64": "{0} = (__typeof__({0}))({1})",
    "trap": "__trap()",
}

_WARP = {
    "shfl.idx.b32": "{0} = __shfl_sync({4}, {1}, {2}, 32 - (({3}) >> 8))",
    "shfl.up.b32": "{0} = __shfl_up_sync({4}, {1}, {2}, 32 - (({3}) >> 8))",
    "shfl.down.b32": "{0} = __shfl_down_sync({4}, {1}, {2}, 32 - (({3}) >> 8))",
    "shfl.bfly.b32": "{0} = __shfl_xor_sync({4}, {1}, {2}, 32 - (({3}) >> 8))",
    "vote.any.pred": "{0} = __any_sync({2}, {1})",
    "vote.all.pred": "{0} = __all_sync({2}, {1})",
    "vote.ballot.b32": "{0} = __ballot_sync({2}, {1})",
    "activemask.b32": "{0} = __activemask()",
    "redux.add.s32": "{0} = __reduce_add_sync({2}, (int)({1}))",
    "redux.add.u32": "{0} = __reduce_add_sync({2}, (unsigned int)({1}))",
}
"""The third operand of a shuffle has 32 - width in its second byte."""


def _atomics() -> Iterator[tuple[str, str]]:
    """Atomic operations by address: 64 bits of a generic one, or a shared handle."""
    places = {"": "({1})", "global.": "({1})", "shared.": "kwemu_shared_address({1})"}
    functions = {"add": "Add", "min": "Min", "max": "Max", "exch": "Exch", "and": "And", "or": "Or"}
    for space, address in places.items():
        for instruction, function in functions.items():
            for name in ("s32", "u32", "b32", "u64", "b64", "f32", "f64"):
                call = f"atomic{function}(({TYPES[name]}*){address}, {{2}})"
                yield f"atom.{space}{instruction}.{name}", f"{{0}} = {call}"
                shifted = call.replace("{1}", "{0}").replace("{2}", "{1}")
                yield f"red.{space}{instruction}.{name}", shifted


_ROWS: Mapping[str, str] = MappingProxyType(
    {
        **dict(_arithmetic()),
        **dict(_calls()),
        **dict(_narrow_memory()),
        **dict(_atomics()),
        **_REAL,
        **_BITS,
        **_WARP,
        **HOPPER_ROWS,
    }
)
"""Instructions without hints to expressions. A key without a type is for every type."""
