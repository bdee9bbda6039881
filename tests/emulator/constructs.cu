#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <type_traits>
#define LAUNCH(K, GRID, ...) \
  do {                       \
    K<<<GRID, 32>>>(__VA_ARGS__); \
  } while (0)
#define TILE(NAME, T) __shared__ T NAME[32]
#define ASM_LANE(x) asm volatile("mov.u32 %0, %%laneid;" : "=r"(x))
template <class T, int N> struct Pair { static constexpr int n = N; typedef T type; };
template <class T> constexpr int ceil_div(T a) { return a; }
extern __shared__ __align__(16) char raw_shared[];
namespace app {
extern __shared__ float4 other[];
template <class T, int N>
__global__ void __launch_bounds__(256) k(T* __restrict__ x, const T* y, int n) {
  __shared__ alignas(16) T tile[N][33], *pointer;
  __shared__ typename Pair<T, N>::type plain, second[4];
  volatile __shared__ float v[4];
  static __shared__ struct { int a; float b; } anonymous;
  extern __shared__ T s[];
  extern __shared__ T grid_[][4];
  T* r = reinterpret_cast<T*>(raw_shared);
  auto f = [&](int i) { __shared__ int count; count = i; return tile[i][0]; };
  tile[threadIdx.x % N][0] = x[0]; plain = 1; second[0] = f(1); v[0] = 2; anonymous.b = 1; s[0] = 1; grid_[1][1] = 2; r[0] = 1; pointer = x;
  float e; unsigned lane, m;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(1.0f));
  ASM_LANE(lane);
  asm volatile("{\n\t.reg .pred p;\n\t.reg .u64 a;\n\t setp.ne.b32 p, %1, 0;\n\t"
               "@p mov.u32 %0, 5; // comment\n\t"
               "@!p ld.global.nc.L1::no_allocate.u32 %0, [%2 + 16];\n\t}"
               : "=r"(m) : "r"(lane), "l"(x) : "memory");
  float4 q;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(q.x), "=f"(q.y), "=f"(q.z), "=f"(q.w) : "l"(y));
  asm volatile("st.global.cs.v2.f32 [%0], {%1, %2};" :: "l"(x), "f"(q.x), "f"(q.y) : "memory");
  asm volatile("shfl.sync.bfly.b32 %0, %1, 16, 0x1f, 0xffffffff;" : "=f"(e) : "f"(e));
  asm volatile("red.global.add.f32 [%0], %1;" :: "l"(x), "f"(e));
  asm volatile("bar.sync 1, 64;"); asm volatile("bar.sync 0;" ::: "memory"); asm volatile("" ::: "memory");
  asm volatile("prefetch.global.L2 [%0];" :: "l"(x)); asm volatile("membar.gl;"); asm("trap;");
  asm volatile("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(lane) : "l"(&plain));
  unsigned short h; asm volatile("ld.global.u8 %0, [%1];" : "=h"(h) : "l"(x));
  asm("fma.rn.f32 %0, %1, %2, 0f3F800000;" : "=f"(e) : "f"(e), "f"(e));
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(lane) : "f"(e)); asm("mov.b32 %0, %1;" : "=r"(lane) : "f"(e));
  asm("mov.u32 %0, %ctaid.x;" : "=r"(lane)); asm("lg2.approx.f32 %0, %1;" : "=f"(e) : "f"(e)); asm("rcp.approx.f32 %0, %1;" : "=f"(e) : "f"(e));
  asm("vote.sync.ballot.b32 %0, 1, 0xffffffff;" : "=r"(lane)); asm("atom.global.add.u32 %0, [%1], 1;" : "=r"(lane) : "l"(x)); asm("atom.shared.add.u32 %0, [%1], 1;" : "=r"(lane) : "r"(lane));
}
}
__global__ void empty() { TILE(a, float); TILE(b, int); a[0] = b[0]; }
inline __device__ __forceinline__ int add(int a) { return a; }
__device__ __noinline__ int sub(int a) { return a; }
struct Box { template <class T> void call(T* p) const { kernel<<<dim3(1, 2), dim3(32)>>>(p, p, n); (*kernel)<<<1, 2>>>(p, p, n); }
  void (*kernel)(float*, const float*, int); int n; template <class T> static void launch(T*) {} };
template <class X> void dependent(X x, float* p) {
  app::k<float, Pair<int, Pair<float, 4>::n>::n><<<Pair<int, ceil_div<int>(3)>::n, Pair<int, Pair<char, 2>::n>::n>>>(p, p, 1);
  ::app::k<typename X::type, X::n><<<{1, 2, 3}, 4, 0, nullptr>>>(p, NULL, X::n);
  x.template at<X>()<<<1, 1>>>();
}
struct Y { typedef float type; static constexpr int n = 2; template <class X> auto at() { return &empty; } };
void run(float* p, cudaStream_t stream) {
  LAUNCH(empty, 3);
  LAUNCH((app::k<float, 2>), 3, p, p, 4);
  auto go = [&] { empty<<<1, 32, 0, stream>>>(/* none */); };
  go();
  if (p) empty
      // why
      <<<1,
#ifdef NO
         4
#else
         5 >> 1
#endif
         >>>();
  void (*table[2])() = {empty, empty};
  table[1]<<<1, 1>>>();
  Box{&app::k<float, 2>, 1}.call(p); dependent(Y(), p);
}
const char* text = R"x(k<<<1, 2>>>(3) __shared__ asm("")x)x";  // k<<<1, 2>>>(3)
