"""What ran: names, makers, shares; and what is said of it."""

from kernelwright.verify.ran import Maker, base_name, list_kernels
from kernelwright.verify.ran_checks import check_decoys, check_what_ran
from kernelwright.verify.verdict import Outcome, Status

_ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::Sigmoid>(int)"
_OWN = "void (anonymous namespace)::scale_kernel<float>(float const*, float*)"


def test_names_are_reduced_to_what_a_person_calls_a_kernel() -> None:
    assert base_name(_OWN) == "scale_kernel"
    assert base_name(_ATEN) == "vectorized_elementwise_kernel"
    assert base_name("swish_kernel") == "swish_kernel"
    assert base_name("ns::a::kernel<(int)3>(float*)") == "kernel"


def test_kernels_are_summed_up_and_sorted_by_time() -> None:
    ran = list_kernels([(_ATEN, 0.25), (_OWN, 1.0), (_OWN, 2.0)], ["scale_kernel<float>(float*)"])
    assert [(it.name, it.maker, it.calls, it.milliseconds) for it in ran.kernels] == [
        ("scale_kernel", Maker.OWN, 2, 3.0),
        ("vectorized_elementwise_kernel", Maker.ATEN, 1, 0.25),
    ]
    assert ran.own_share == 3.0 / 3.25


def test_libraries_are_told_by_the_names_they_give() -> None:
    names = ("nvjet_tst_128x64", "cudnn::ops::nchwToNhwcKernel", "triton_poi_fused_0", "Memset")
    makers = [it.maker for it in list_kernels([(name, 1.0) for name in names], []).kernels]
    assert makers == [Maker.CUBLAS, Maker.CUDNN, Maker.COMPILER, Maker.MEMORY]


def test_a_file_whose_kernels_do_not_run_is_told_so_and_not_condemned() -> None:
    ran = list_kernels([(_ATEN, 1.0)], [])
    claimed = check_what_ran(ran, "__global__ void scale_kernel() {}")
    assert claimed.outcome is Outcome.WARNING
    assert "no kernel of its own ran" in claimed.evidence
    assert "vectorized_elementwise_kernel" in claimed.evidence
    assert check_what_ran(ran, "return torch.sigmoid(x)").outcome is Outcome.PASSED


def test_own_kernels_are_listed_with_their_share() -> None:
    check = check_what_ran(list_kernels([(_ATEN, 1.0), (_OWN, 3.0)], [_OWN]), "__global__")
    assert check.outcome is Outcome.PASSED
    assert "75% of the time is in its own kernels" in check.evidence


def test_decoys_are_what_no_case_needs() -> None:
    decoys = check_decoys({_OWN: 3}, ["seed=0", "seed=1"], ["seed=0", "seed=1"])
    assert (decoys.outcome, decoys.status) == (Outcome.FAILED, Status.CHEATING)
    assert "scale_kernel" in decoys.evidence
    needed = check_decoys({_OWN: 3}, ["seed=0"], ["seed=0", "seed=1"])
    assert needed.outcome is Outcome.PASSED
    assert check_decoys({}, ["seed=0"], ["seed=0"]).outcome is Outcome.SKIPPED
    assert check_decoys({}, [], [], doubt="it ended").outcome is Outcome.SKIPPED
