"""A text holds only the library declarations, and members of types, that it uses."""

from kernelwright import kernels
from kernelwright.kernels.pruning.declarations import block_texts, blocks, in_use

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

MEMBERS = """// A type.
struct Ring : Base<Slots> {
  // Both are one statement.
  static constexpr int SLOTS = 4, UNUSED = Twice<int, 2>::VALUE;
  static constexpr bool IS_LONG = SLOTS > 2;
  using Element = Item;
  enum Role { FIRST, LAST };

  explicit Ring(int first) : first_(first), rest_{} { helper(); }
  ~Ring() { close(); }
  Ring& operator=(const Ring&) = delete;
  static_assert(sizeof(Pack) == 4, "Pack fits");

  // Goes on.
  template <int STEP>
  __device__ __forceinline__ void advance() {
    first_ += STEP;
  }
  int other(int x) const { return only_here(x); }

 private:
  int secret() const { return 1; }

 public:
  void (*kernel)(Parameters);
  int first_;  // of all
};
"""


def _used(code: str, *wanted: str) -> str:
    return "\n\n".join(in_use([list(block_texts(code))], wanted)[0])


def test_what_blocks_declare() -> None:
    names = [[set(it.whole.declares) for it in block.declarations] for block in blocks(CODE)]
    assert names == [[], [], [{"WIDTH"}], [{"twice_t"}], [], [{"one"}], [{"Two"}, {"helper"}]]


def test_what_is_used_brings_what_it_uses_and_its_headings() -> None:
    assert _used(CODE, "WIDTH") == (
        "// What this file is.\n\n// --- Numbers ---\n\nconstexpr int WIDTH = 4;"
    )
    with_helper = _used(CODE, "helper")
    assert "twice_t<T> one" in with_helper and "WIDTH = 4" in with_helper
    assert "struct" not in with_helper and with_helper.count("\n\n") == 7
    assert _used(CODE, "T", "nothing") == ""


def test_members_that_nothing_names_go_and_the_rest_stays() -> None:
    text = _used(MEMBERS, "Ring", "advance")
    for gone in ("IS_LONG", "Element", "other", "private:", "secret", "only_here"):
        assert gone not in text
    for kept in ("explicit Ring", "~Ring", "operator=", "static_assert", "(*kernel)", "Role"):
        assert kept in text
    assert "// Goes on.\n  template <int STEP>" in text and "first_;  // of all\n};" in text


OPTIONAL = """struct Sum {
  int first, size;
  [[maybe_unused]] int batch[4] = {}, rank = 0;
  int size() const { return first; }
};
__global__ void __launch_bounds__(THREADS) sum_kernel(Sum sum) { sum.first += 1; }
"""


def test_a_function_of_the_name_of_a_field_stays_only_where_it_is_called() -> None:
    field, call = "void f(Sum x) { x.size = 1; }", "void f(Sum x) { x.size(); }"
    assert "int size() const" not in _used(f"{OPTIONAL}\n{field}", "f")
    assert "int size() const" in _used(f"{OPTIONAL}\n{call}", "f")


def test_optional_fields_go_where_nothing_names_one() -> None:
    assert "batch" not in _used(OPTIONAL, "Sum")
    assert "int batch[4] = {}, rank = 0;" in _used(OPTIONAL, "Sum", "rank")


def test_a_kernel_is_known_by_its_name() -> None:
    assert "sum_kernel" not in _used(OPTIONAL, "__launch_bounds__", "THREADS")
    assert "sum_kernel" in _used(OPTIONAL, "sum_kernel")


def test_one_name_keeps_the_statement_that_declares_it() -> None:
    assert "Twice<int, 2>" in _used(MEMBERS, "Ring", "SLOTS")
    assert "Both are one statement" not in _used(MEMBERS, "Ring")
    assert " private:\n  int secret" in _used(MEMBERS, "Ring", "secret")


def test_a_label_is_followed_by_what_it_labels() -> None:
    code = "struct A {\n  int f() { return g(); }\n\n private:\n  int h();\n\n  int g();\n};"
    assert "private:\n  int g();" in _used(code, "A", "f")


def test_a_function_of_math_comes_alone() -> None:
    headers, text = kernels.in_use("silu(x)", "math.cuh")
    assert "T silu(T x)" in text and "gelu" not in text and "maximum" not in text
    assert "<cmath>" in headers
    assert kernels.in_use("x + 1", "math.cuh") == ((), "")


def test_a_specialisation_comes_with_its_template_and_its_arguments() -> None:
    headers, text = kernels.in_use("widen(x)", "pointwise.cuh", "half.cuh", "math.cuh")
    assert "struct Element<__half>" in text and "<cuda_fp16.h>" in headers
    assert "math.cuh" not in text
    code = "struct A {};\n\ntemplate <class T>\nstruct B {};\n\ntemplate <>\nstruct B<A> {};"
    assert "B<A>" not in _used(code, "B")
    assert "B<A>" in _used(code, "B", "A")
