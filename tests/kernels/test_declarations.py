"""A text holds only the library declarations that it uses."""

from kernelwright import kernels
from kernelwright.kernels.declarations import blocks, in_use

CODE = """// What this file is.

// --- Numbers ---

constexpr int WIDTH = 4;

template <class T>
using twice_t = Pair<T, T>;

// --- Functions ---

template <class T>
__device__ __forceinline__ twice_t<T> one(T x) {
  return {x, "a } in quotes"};

}

struct alignas(width(2)) Two {
  int a;
};
int helper(int x) { return one(x) + WIDTH; }
"""


def test_what_blocks_declare() -> None:
    names = [set(block.declares) for block in blocks(CODE)]
    assert names == [set(), set(), {"WIDTH"}, {"twice_t"}, set(), {"one"}, {"Two", "helper"}]


def test_what_is_used_brings_what_it_uses_and_its_headings() -> None:
    text, mentions = in_use(CODE, {"WIDTH"})
    assert text == "// What this file is.\n\n// --- Numbers ---\n\nconstexpr int WIDTH = 4;"
    assert "WIDTH" in mentions
    assert in_use(CODE, {"helper"})[0].count("\n\n") == 7
    assert in_use(CODE, {"T", "nothing"})[0] == ""


def test_a_function_of_math_comes_alone() -> None:
    headers, text = kernels.in_use("silu(x)", "math.cuh")
    assert "T silu(T x)" in text and "gelu" not in text and "maximum" not in text
    assert "<cmath>" in headers
    assert kernels.in_use("x + 1", "math.cuh") == ((), "")


def test_a_specialisation_comes_with_its_template() -> None:
    headers, text = kernels.in_use("Pointwise", "pointwise.cuh", "half.cuh", "math.cuh")
    assert "struct Element<__half>" in text and "<cuda_fp16.h>" in headers
    assert "math.cuh" not in text
