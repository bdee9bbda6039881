"""What the translator makes of each construct, and that the host compiler takes it."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.capture import capture
from kernelwright.codegen.cuda import cuda_source
from kernelwright.emulator.compile import INCLUDE
from kernelwright.emulator.ptx import UnsupportedPtxError
from kernelwright.emulator.translate import UnsupportedCudaError, translate
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule
from kernelwright.toolchain.compilers import find_cxx

_CONSTRUCTS = Path(__file__).with_name("constructs.cu")
_EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples").glob("*.py")
    if not path.stem.endswith("_new")
)


def _body(source: str) -> str:
    """The translation without its first line."""
    return translate(source, "a.cu").removeprefix('#line 1 "a.cu"\n')


def _launch(name: str, configuration: str, callee: str, arguments: str) -> str:
    return (
        f'::kwemu::launch("{name}", __FILE__, 1, ::kwemu::config({configuration}), '
        f"[&](auto... kwemu_args) KWEMU_UNCHECKED {{ {callee}(kwemu_args...); }}{arguments})"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "k<T, 4><<<g, b, sh, st>>>(a, b);",
            _launch("k", "g, b, sh, st", "k<T, 4>", ", a, b") + ";",
        ),
        ("k<<<1, 2>>>();", _launch("k", "1, 2", "k", "") + ";"),
        (
            "return kernels.rows<<<1, 2>>>(p);",
            "return " + _launch("kernels.rows", "1, 2", "kernels.rows", ", p") + ";",
        ),
        (
            "if (x > 0) this->kernel<<<1, 2>>>(p);",
            "if (x > 0) " + _launch("this->kernel", "1, 2", "this->kernel", ", p") + ";",
        ),
        (
            "x.template k<T><<<1, 2>>>(p);",
            _launch("x.k", "1, 2", "x.template k<T>", ", p") + ";",
        ),
        (
            "::a::k<A<B<C>>><<<1, 2>>>(p);",
            _launch("::a::k", "1, 2", "::a::k<A<B<C>>>", ", p") + ";",
        ),
        (
            "k<<<A<B<C>>::n, N<T>>>>(p);",
            _launch("k", "A<B<C>>::n, N<T>", "k", ", p") + ";",
        ),
        (
            "k<<<f<A<B<C>>>(n), 1>>>(p);",
            _launch("k", "f<A<B<C>>>(n), 1", "k", ", p") + ";",
        ),
        ("k<<<n >> 5, 32>>>(p);", _launch("k", "n >> 5, 32", "k", ", p") + ";"),
        ("(*table[i])<<<1, 2>>>(p);", _launch("(*table[i])", "1, 2", "(*table[i])", ", p") + ";"),
        ("k<<<1, 2>>>(p, NULL);", _launch("k", "1, 2", "k", ", p, nullptr") + ";"),
        (
            'AT_DISPATCH(t, "k", [&] { k<S><<<1, 2>>>(p); });',
            'AT_DISPATCH(t, "k", [&] { ' + _launch("k", "1, 2", "k<S>", ", p") + "; });",
        ),
    ],
)
def test_launch(source: str, expected: str) -> None:
    assert _body(source) == expected


def test_launch_over_lines_and_directives() -> None:
    source = "k // one\n  <<<1,\n#ifdef A\n 2\n#else\n 3\n#endif\n>>>(p,\n q);"
    expected = (
        '::kwemu::launch("k", __FILE__, 1, ::kwemu::config( // one\n  1,\n#ifdef A\n 2\n#else\n 3\n'
        "#endif\n), [&](auto... kwemu_args) KWEMU_UNCHECKED { k(kwemu_args...); }, p,\n q);"
    )
    assert _body(source) == expected


def test_launch_in_a_macro_is_at_the_macros_use() -> None:
    assert _body("#define L(K, ...) \\\n  K<<<1, 2>>>(__VA_ARGS__)\nint x;") == (
        "#define L(K, ...) \\\n"
        "  ::kwemu::launch(#K, __FILE__, __LINE__, ::kwemu::config(1, 2), "
        "[&](auto... kwemu_args) KWEMU_UNCHECKED { K(kwemu_args...); }"
        "__VA_OPT__(,) __VA_ARGS__)\nint x;"
    )


def test_launch_without_an_end_names_its_line() -> None:
    with pytest.raises(UnsupportedCudaError) as error:
        translate("void f() {\n  k<<<1, 2;\n}", "a.cu")
    assert error.value.location == "a.cu:2"


def _shared(holder: str, name: str) -> str:
    return (
        f'; static constinit ::kwemu::SharedSite kwemu_site_{name}{{"{name}", 1}}'
        f"; auto& {name} = *static_cast<decltype({holder}::{name})*>("
        f"kwemu_shared(&kwemu_site_{name}, sizeof({holder}::{name}), alignof({holder})))"
    )


@pytest.mark.parametrize(
    ("declaration", "members", "names"),
    [
        ("__shared__ float x[4][N + 1], *y;", "float x[4][N + 1], *y", ["x", "y"]),
        ("static __shared__ alignas(16) T x[2];", "alignas(16) T x[2]", ["x"]),
        ("volatile __shared__ int x;", "volatile int x", ["x"]),
        (
            "__shared__ typename A<T, 2>::Storage x, z;",
            "typename A<T, 2>::Storage x, z",
            ["x", "z"],
        ),
        ("__shared__ struct { int a[2]; } x;", "struct { int a[2]; } x", ["x"]),
    ],
)
def test_shared_variables(declaration: str, members: str, names: list[str]) -> None:
    translated = _body(f"void f() {{ {declaration} }}")
    holder = f"kwemu_of_{names[0]}"
    references = "".join(_shared(holder, name) for name in names)
    words = " ".join(translated.split())
    assert words == f"void f() {{ struct {holder} {{ {members}; }}{references}; }}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "void f() { extern __shared__ __align__(16) unsigned char s[]; }",
            "void f() { auto* s = ::kwemu::dynamic_shared<unsigned char>(); }",
        ),
        (
            "void f() { extern volatile __shared__ T s[][4]; }",
            "void f() { auto* s = ::kwemu::dynamic_shared<volatile T[4]>(); }",
        ),
        (
            "namespace a { extern __shared__ float4 s[]; }",
            "namespace a { static constexpr ::kwemu::DynamicShared<float4> s{}; }",
        ),
        (
            "extern __shared__ char s[]; void f() { g(reinterpret_cast<T*>(s), s[1]); }",
            "static constexpr ::kwemu::DynamicShared<char> s{}; "
            "void f() { g(reinterpret_cast<T*>(+s), s[1]); }",
        ),
    ],
)
def test_dynamic_shared_memory(source: str, expected: str) -> None:
    assert _body(source) == expected


def test_cluster_of_a_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedCudaError) as error:
        translate("\n__global__ void __cluster_dims__(2, 1, 1) k() {}", "a.cu")
    assert error.value.location == "a.cu:2"


def test_shared_variable_outside_of_a_function_is_refused() -> None:
    with pytest.raises(UnsupportedCudaError) as error:
        translate("\n__shared__ int x;", "a.cu")
    assert error.value.location == "a.cu:2"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            'asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\\n" '
            '::"r"(to), "l"(from), "r"(n) : "memory");',
            "::kwemu::ptx::cp_async_cg_shared_global(to, from, 16, n);",
        ),
        (
            'asm volatile("cp.async.wait_group %0;" ::"n"(N - 1));',
            "::kwemu::ptx::cp_async_wait_group(N - 1);",
        ),
        (
            'asm("ld.global.nc.L1::no_allocate.v2.f32 {%0,%1}, [%2 + 8];"'
            ' : "=f"(v.x), "=f"(v.y) : "l"(p));',
            "::kwemu::ptx::load_global(v.x, v.y, ((unsigned long long)(p) + 8));",
        ),
        ('asm("mov.u32 %0, %%tid.x;" : "=r"(i));', "threadIdx.x"),
        ('asm("fma.rn.ftz.f32 %0, %1, %2, 0f3F800000;" : "=f"(d) : "f"(a), "f"(b));', "0x3F800000"),
        ('asm volatile("" ::: "memory");', "(void)0;"),
        (
            'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" '
            ':: "r"(barrier), "r"(bytes) : "memory");',
            "::kwemu::ptx::mbarrier_arrive_expect_tx(::kwemu::ptx::SINK, barrier, bytes);",
        ),
        (
            'asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global'
            '.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" '
            ':: "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask) : "memory");',
            "::kwemu::ptx::copy_box_to_cluster<2>(mask, to, map, x, y, barrier);",
        ),
        (
            'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 '
            '{%0, %1, %2, %3}, %4, %5, 1, 1, -1, %6, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), '
            '"+f"(d[3]) : "l"(a), "l"(b), "n"(T));',
            "::kwemu::ptx::multiply<8, ::kwemu::ProductElement::kBfloat16>"
            "(a, b, 1, 1, -1, T, 0, d[0], d[1], d[2], d[3]);",
        ),
        (
            'asm("{\\n .reg .pred p; // guard\\n setp.ne.b32 p, %1, 0;\\n @!p mov.u32 %0, 5; }"'
            ' : "=r"(m) : "r"(n));',
            "if (!kwemu_reg_p) m = ",
        ),
    ],
)
def test_inline_ptx(statement: str, expected: str) -> None:
    assert expected in _body(statement)


@pytest.mark.parametrize(
    "instruction",
    ["tcgen05.fence::before_thread_sync;", "add.f32 %0, %1;", "mov.u32 %0, %nonsense;"],
)
def test_unknown_ptx_is_refused_with_its_line(instruction: str) -> None:
    with pytest.raises(UnsupportedPtxError) as error:
        translate(f'\n\n  asm("{instruction}" : "=f"(x) : "f"(y));', "a.cu")
    assert error.value.location == "a.cu:3"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__noinline__ int f();", "__attribute__((noinline)) int f();"),
        ("__attribute__((__noinline__)) int f();", "__attribute__((__noinline__)) int f();"),
        ("inline __device__ __forceinline__ int f();", " __device__ __forceinline__ int f();"),
        ("#define C(x) TORCH_CHECK(x.is_cuda())", "#define C(x) TORCH_CHECK(x.is_cpu())"),
        ("x.type().is_cuda()", "x.device().is_cpu()"),
        ("torch::kCUDA; c10::DeviceType::CUDA", "torch::kCPU; c10::DeviceType::CPU"),
    ],
)
def test_words(source: str, expected: str) -> None:
    assert _body(source) == expected


_PLAIN = [
    '#include <cuda_runtime.h>\n#error don\'t\n#if A < 3\n#pragma unroll\n#define F "k<<<1>>>(x)"',
    'const char* s = R"x(k<<<1, 2>>>(3) __shared__ asm(""))x"; // k<<<1, 2>>>(3)\n/* __shared__ */',
    "a << b << (c >> 3); x = a<b>::c < d; f<<=2; char c = '\\''; long n = 1'000'000;",
    "__global__ void __launch_bounds__(256) k(float* __restrict__ x) {  x[threadIdx.x] = 1e-5f;\n}",
]


@pytest.mark.parametrize("source", _PLAIN)
def test_other_text_is_unchanged(source: str) -> None:
    assert _body(source) == source


_FRAGMENTS = [
    *_PLAIN,
    "void f() { k<A<int>>\n<<<1, // g\n 2>>>(a,\n b); }",
    "void f() { __shared__\n float x[4], // first\n y; }",
    'void f() { asm volatile("membar.gl;"\n ::\n : "memory"); }',
    "#define L(K) \\\n  K<<<1, \\\n 2>>>()",
    "extern __shared__ char s[\n];",
]


@given(st.lists(st.sampled_from(_FRAGMENTS), max_size=6).map("\n".join))
@settings(deadline=None)
def test_lines_are_kept(source: str) -> None:
    translated = _body(source)
    assert translated.count("\n") == source.count("\n")
    kept = [line for line in source.split("\n") if line.startswith(("__global__", "#include"))]
    assert [translated.split("\n")[source.split("\n").index(line)] for line in kept] == kept


def _compile(text: str, folder: Path) -> str:
    """The host compiler's messages."""
    compiler = find_cxx()
    assert compiler is not None
    path = folder / "unit.cpp"
    path.write_text(text)
    command = [str(compiler.path), "-std=c++20", "-fsyntax-only", "-w", f"-I{INCLUDE}", str(path)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_every_construct_compiles(tmp_path: Path) -> None:
    assert _compile(translate(_CONSTRUCTS.read_text(), "constructs.cu"), tmp_path) == ""


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_error_is_at_the_users_line(tmp_path: Path) -> None:
    source = _CONSTRUCTS.read_text()
    broken = f"{source}\nint broken = undeclared;\n"
    messages = _compile(translate(broken, "constructs.cu"), tmp_path)
    assert messages.startswith(f"constructs.cu:{broken.count(chr(10))}:")


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    source = cuda_source(schedule(rewrite(capture(load_problem(path))).graph, H200))
    translated = translate(source, "example.cu")
    assert translated.count("\n") == source.count("\n") + 1
    assert "launch_dependent(" in source
    assert not any(word in translated for word in ("<<<", "asm volatile", "__shared__"))
    if path.stem == "matmul" and find_cxx() is not None:
        assert _compile(translated, tmp_path) == ""
