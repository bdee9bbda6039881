"""The PTX instructions of compute capability 9.0 that the emulator knows, as C++.

Clusters, barriers in shared memory (mbarrier), bulk copies of boxes (TMA), products of warpgroups
(wgmma), registers that move between warps. See ptx_table for what a row is.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

CLUSTER_REGISTERS: Mapping[str, str] = MappingProxyType(
    {
        "cluster_ctarank": "kwemu_cluster_rank()",
        "cluster_nctarank": "(kwemu_cluster_shape().x * kwemu_cluster_shape().y * "
        "kwemu_cluster_shape().z)",
    }
)
"""`%name`"""

CLUSTER_INDEX_REGISTERS: Mapping[str, str] = MappingProxyType(
    {
        "clusterid": "kwemu_cluster_index()",
        "cluster_ctaid": "kwemu_place_in_cluster()",
        "cluster_nctaid": "kwemu_cluster_shape()",
    }
)
"""`%name.x` and its sisters."""

_FAMILIES = (
    *("mbarrier", "cp.async.bulk", "wgmma", "barrier.cluster", "fence.proxy", "mapa"),
    "st.shared::cluster",
)
_UNSAID = frozenset(
    {"sync", "aligned", "release", "acquire", "relaxed", "cta", "cluster", "gpu", "b64", "u32"}
    | {"shared", "shared::cta", "shared::cluster", "global", "tile"}
    | {"mbarrier::complete_tx::bytes"}
)
"""Modifiers that all forms of an instruction share, or that say nothing to one host thread."""


def hopper_key(mnemonic: str) -> str:
    """The key of an instruction of these families; its name otherwise.

    A multicast keeps its modifier, which has one operand more.
    """
    if not mnemonic.startswith(_FAMILIES):
        return mnemonic
    head, *rest = mnemonic.split(".")
    kept = [part for part in rest if part not in _UNSAID and not part.startswith("L2::")]
    if kept == ["async", "bulk"] and rest[3] == "global":
        kept.append("global")  # from there to shared memory, and not between blocks
    # Barriers of clusters, stores and fence.proxy are named by what is unsaid elsewhere.
    family = ["cluster"] if head in ("barrier", "st") else []
    return ".".join([head, *family, *kept])


_PLAIN = {
    "mbarrier.init": "::kwemu::ptx::mbarrier_init({all})",
    "mbarrier.inval": "::kwemu::ptx::mbarrier_inval({all})",
    "mbarrier.arrive": "::kwemu::ptx::mbarrier_arrive({all})",
    "mbarrier.arrive.expect_tx": "::kwemu::ptx::mbarrier_arrive_expect_tx({all})",
    "mbarrier.expect_tx": "::kwemu::ptx::mbarrier_expect_tx({all})",
    "mbarrier.try_wait": "::kwemu::ptx::mbarrier_wait({all})",
    "mbarrier.try_wait.parity": "::kwemu::ptx::mbarrier_wait({all})",
    "mbarrier.test_wait": "::kwemu::ptx::mbarrier_wait({all})",
    "mbarrier.test_wait.parity": "::kwemu::ptx::mbarrier_wait({all})",
    "mapa": "{0} = kwemu_map_to_rank({1}, {2})",
    "fence.proxy.async": "kwemu_proxy_fence()",
    "fence.mbarrier_init.release.cluster": "kwemu_proxy_fence()",
    "barrier.cluster.arrive": "kwemu_cluster_arrive()",
    "barrier.cluster.wait": "::kwemu::ptx::cluster_wait()",
    "elect": "::kwemu::ptx::elect({all})",
    "wgmma.fence": "kwemu_product_fence()",
    "wgmma.commit_group": "kwemu_product_commit()",
    "wgmma.wait_group": "::kwemu::ptx::wait_products({0})",
    "setmaxnreg.inc": "::kwemu::ptx::setmaxnreg_inc({0})",
    "setmaxnreg.dec": "::kwemu::ptx::setmaxnreg_dec({0})",
    "cp.async.bulk": "::kwemu::ptx::send_shared({all})",
    "cp.async.bulk.global": "::kwemu::ptx::copy_bulk({all})",
    "cp.async.bulk.prefetch.L2": "::kwemu::ptx::prefetch_bulk({all})",
    "cp.async.bulk.bulk_group": "::kwemu::ptx::store_bulk({all})",
    "cp.async.bulk.commit_group": "kwemu_commit_stores()",
    "cp.async.bulk.wait_group": "kwemu_wait_stores({0})",
    "cp.async.bulk.wait_group.read": "kwemu_wait_stores({0})",
    "prefetch.tensormap": "(void)({0})",
    "griddepcontrol.wait": "kwemu_wait_for_previous()",
    "griddepcontrol.launch_dependents": "kwemu_let_next_start()",
    "st.cluster.b32": "::kwemu::ptx::store_cluster({all})",
    "st.async": "::kwemu::ptx::store_async({all})",
    "ld.acquire": "::kwemu::ptx::load_acquire({all})",
    "ld.acquire.global": "::kwemu::ptx::load_acquire({all})",
    "st.release": "::kwemu::ptx::store_release({all})",
    "st.release.global": "::kwemu::ptx::store_release({all})",
    "ld.relaxed.gpu.global.b64": "::kwemu::ptx::load_relaxed({all})",
    "st.relaxed.gpu.global.b64": "::kwemu::ptx::store_relaxed({all})",
}


def _box_copies() -> Iterator[tuple[str, str]]:
    """Operands: target, map, a place for each dimension, barrier; with multicast the blocks. Of
    stores: map, a place for each dimension, source."""
    for rank in range(1, 6):
        yield f"cp.async.bulk.prefetch.tensor.{rank}d.L2", "::kwemu::ptx::prefetch_box({all})"
        stored = f"::kwemu::ptx::store_box<{rank}>({{all}})"
        yield f"cp.async.bulk.tensor.{rank}d.bulk_group", stored
        yield f"cp.async.bulk.tensor.{rank}d", f"::kwemu::ptx::copy_box<{rank}>({{all}})"
        copied = ", ".join(f"{{{operand}}}" for operand in range(rank + 3))
        yield (
            f"cp.async.bulk.tensor.{rank}d.multicast::cluster",
            f"::kwemu::ptx::copy_box_to_cluster<{rank}>({{{rank + 3}}}, {copied})",
        )
    yield from _pixel_copies()


def _pixel_copies() -> Iterator[tuple[str, str]]:
    """Operands: target, map, a place for each dimension, barrier, offsets of all dimensions but
    channels and batch; with multicast the blocks."""
    for rank in range(3, 6):
        name = f"cp.async.bulk.tensor.{rank}d.im2col"
        last = 2 * rank + 1
        yield name, f"::kwemu::ptx::copy_pixels<{rank}>({{all}})"
        copied = ", ".join(f"{{{operand}}}" for operand in range(last))
        yield (
            f"{name}.multicast::cluster",
            f"::kwemu::ptx::copy_pixels_to_cluster<{rank}>({{{last}}}, {copied})",
        )


def _products() -> Iterator[tuple[str, str]]:
    """Operands: sums, two descriptors, whether to accumulate, signs, transpositions; or with four
    registers instead of the first descriptor and its transposition."""
    for columns in range(8, 257, 8):
        sums = columns // 2
        for others, function in ((7, "multiply"), (9, "multiply_registers")):
            order = (*range(sums, sums + others), *range(sums))
            operands = ", ".join(f"{{{operand}}}" for operand in order)
            for element, known in (("f16", "kHalf"), ("bf16", "kBfloat16")):
                yield (
                    f"wgmma.mma_async.m64n{columns}k16.f32.{element}.{element} {sums + others}",
                    f"::kwemu::ptx::{function}<{columns}, ::kwemu::ProductElement::{known}>"
                    f"({operands})",
                )
        yield _wide_product(columns, sums)


def _wide_product(columns: int, sums: int) -> tuple[str, str]:
    """The row of TF32, which has no transpositions."""
    operands = ", ".join(f"{{{operand}}}" for operand in (*range(sums, sums + 5), *range(sums)))
    return (
        f"wgmma.mma_async.m64n{columns}k8.f32.tf32.tf32 {sums + 5}",
        f"::kwemu::ptx::multiply_tf32<{columns}>({operands})",
    )


HOPPER_ROWS: Mapping[str, str] = MappingProxyType(
    {**_PLAIN, **dict(_box_copies()), **dict(_products())}
)
"""By `hopper_key`, with the number of operands where that tells forms apart, or by the name without
hints and type."""
