// Stands between a process and CUDA (LD_PRELOAD): counts the launches that come from libraries
// which are no part of PyTorch or CUDA, and can keep them from happening.
//
// A launch is known by the library whose code asks for it. cuBLAS and cuDNN carry a runtime of
// their own and never come by here. What a process does to launch by another way, loading the
// driver by hand or linking the runtime into itself, is not seen either: who needs to know compares
// the names counted here with those that a profiler saw.
//
// Until a process says what it knows, it passes every launch on and costs a jump: processes may be
// forked from one that has it, to watch or not.
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime.h"

namespace {

// As cuda_runtime.h has it.
struct Dim3 {
  unsigned x, y, z;
};

using Hearer = void (*)(const char* kernel, void* stream);

struct State {
  std::mutex mutex;
  std::vector<std::string> homes;          // folders of libraries that are not counted
  std::map<const void*, bool> is_counted;  // by the address at which a library is loaded
  std::map<std::string, unsigned long long> launches;
  std::atomic<bool> is_silent{false};
  std::atomic<Hearer> hearer{nullptr};
};

std::atomic<bool> is_watching{false};

State& state() {
  static State* const only = new State;  // outlives whatever launches at exit
  return *only;
}

// Whether code at `caller` belongs to none of the known libraries.
bool is_counted(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return true;
  const auto known = state().is_counted.find(info.dli_fbase);
  if (known != state().is_counted.end()) return known->second;
  char* const real = realpath(info.dli_fname, nullptr);
  const std::string file = real == nullptr ? info.dli_fname : real;
  std::free(real);
  const auto& homes = state().homes;
  const bool is_known = std::any_of(homes.begin(), homes.end(), [&](const std::string& home) {
    return file.compare(0, home.size(), home) == 0;
  });
  return state().is_counted[info.dli_fbase] = !is_known;
}

std::string readable(const char* symbol) {
  int status = -1;
  char* const plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const std::string text = status == 0 ? plain : symbol;
  std::free(plain);
  return text;
}

using NameOf = int (*)(const char**, const void*);

std::string name_of(const char* name_function, const void* kernel) {
  const char* symbol = nullptr;
  const auto ask = find<NameOf>(name_function);  // since CUDA 12.3
  if (ask != nullptr && ask(&symbol, kernel) == 0 && symbol != nullptr) return readable(symbol);
  Dl_info info;
  const bool is_known = dladdr(kernel, &info) != 0 && info.dli_sname != nullptr;
  return is_known ? readable(info.dli_sname) : "kernel";
}

// A launch: counted if it is a stranger's, told of to who wants to hear, once it has happened.
class Launch {
 public:
  Launch(const void* caller, const char* name_function, const void* kernel, void* stream)
      : stream_(stream) {
    if (!is_watching.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(state().mutex);
    if (!is_counted(caller)) return;
    name_ = name_of(name_function, kernel);
    ++state().launches[name_];
    is_dropped_ = state().is_silent;
  }

  // What it gives: `happen`'s result, or success where it must not happen.
  template <typename Happen>
  int operator()(Happen happen) const {
    if (is_dropped_) return 0;
    const int result = happen();
    const Hearer hearer = state().hearer;
    if (!name_.empty() && hearer != nullptr) hearer(name_.c_str(), stream_);
    return result;
  }

 private:
  std::string name_;
  void* stream_;
  bool is_dropped_ = false;
};

// The streams that a cudaLaunchConfig_t and a CUlaunchConfig name.
void* stream_of(const void* config) {
  struct Config {
    Dim3 grid, block;
    size_t shared;
    void* stream;
  };
  return static_cast<const Config*>(config)->stream;
}

void* driver_stream_of(const void* config) {
  struct Config {
    Dim3 grid, block;
    unsigned shared;
    void* stream;
  };
  return static_cast<const Config*>(config)->stream;
}

constexpr int kNotFound = 500;  // cudaErrorSymbolNotFound

// Found once: `find` keeps the library from being unloaded, or it is there for good.
template <const char* Name, typename... Arguments>
int pass_on(Arguments... arguments) {
  using Function = int (*)(Arguments...);
  static std::atomic<Function> known{nullptr};
  Function real = known.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = find<Function>(Name);
    known.store(real, std::memory_order_relaxed);
  }
  return real == nullptr ? kNotFound : real(arguments...);
}

constexpr const char* kRuntimeName = "cudaFuncGetName";
constexpr const char* kDriverName = "cuFuncGetName";

constexpr char kCudaLaunchKernel[] = "cudaLaunchKernel";
constexpr char kCudaLaunchKernelPerThread[] = "cudaLaunchKernel_ptsz";
constexpr char kHandleCudaLaunchKernel[] = "__cudaLaunchKernel";
constexpr char kHandleCudaLaunchKernelPerThread[] = "__cudaLaunchKernel_ptsz";
constexpr char kCudaLaunchKernelExC[] = "cudaLaunchKernelExC";
constexpr char kCudaLaunchKernelExCPerThread[] = "cudaLaunchKernelExC_ptsz";
constexpr char kCudaLaunchCooperativeKernel[] = "cudaLaunchCooperativeKernel";
constexpr char kCuLaunchKernel[] = "cuLaunchKernel";
constexpr char kCuLaunchKernelEx[] = "cuLaunchKernelEx";

}  // namespace

// The folders of libraries whose launches do not count, one to a line; from now on others do.
EXPORT void kw_launches_know(const char* lines) {
  const std::lock_guard lock(state().mutex);
  state().is_counted.clear();
  const std::string text(lines);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) state().homes.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  is_watching = true;
}

// Whether counted launches do nothing from now on.
EXPORT void kw_launches_silence(int is_silent) { state().is_silent = is_silent != 0; }

// Lines of "<count> <kernel>" with a closing zero, as far as `size` goes; the size of it all.
EXPORT size_t kw_launches_seen(char* buffer, size_t size) {
  const std::lock_guard lock(state().mutex);
  std::string text;
  for (const auto& [name, count] : state().launches) {
    text += std::to_string(count) + ' ' + name + '\n';
  }
  if (size > 0) {
    const size_t copied = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return text.size() + 1;
}

// Who is told of each counted launch that has happened; nobody where it is null.
EXPORT void kw_launches_tell(Hearer hearer) { state().hearer = hearer; }

EXPORT void kw_launches_forget() {
  const std::lock_guard lock(state().mutex);
  state().launches.clear();
}

// What nvcc's launch syntax calls: up to CUDA 12 with the function, later with a handle.
EXPORT int cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                            size_t shared, void* stream) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream);
  return launch(
      [=] { return pass_on<kCudaLaunchKernel>(kernel, grid, block, arguments, shared, stream); });
}

EXPORT int cudaLaunchKernel_ptsz(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                 size_t shared, void* stream) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream);
  return launch([=] {
    return pass_on<kCudaLaunchKernelPerThread>(kernel, grid, block, arguments, shared, stream);
  });
}

EXPORT int __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                              size_t shared, void* stream) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream);
  return launch([=] {
    return pass_on<kHandleCudaLaunchKernel>(kernel, grid, block, arguments, shared, stream);
  });
}

EXPORT int __cudaLaunchKernel_ptsz(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                   size_t shared, void* stream) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream);
  return launch([=] {
    return pass_on<kHandleCudaLaunchKernelPerThread>(kernel, grid, block, arguments, shared,
                                                     stream);
  });
}

EXPORT int cudaLaunchKernelExC(const void* config, const void* kernel, void** arguments) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream_of(config));
  return launch([=] { return pass_on<kCudaLaunchKernelExC>(config, kernel, arguments); });
}

EXPORT int cudaLaunchKernelExC_ptsz(const void* config, const void* kernel, void** arguments) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream_of(config));
  return launch([=] { return pass_on<kCudaLaunchKernelExCPerThread>(config, kernel, arguments); });
}

EXPORT int cudaLaunchCooperativeKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                       size_t shared, void* stream) {
  const Launch launch(__builtin_return_address(0), kRuntimeName, kernel, stream);
  return launch([=] {
    return pass_on<kCudaLaunchCooperativeKernel>(kernel, grid, block, arguments, shared, stream);
  });
}

// The driver's own, for those that link it.
EXPORT int cuLaunchKernel(void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                          void* stream, void** arguments, void** extra) {
  const Launch launch(__builtin_return_address(0), kDriverName, kernel, stream);
  return launch([=] {
    return pass_on<kCuLaunchKernel>(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared, stream, arguments, extra);
  });
}

EXPORT int cuLaunchKernelEx(const void* config, void* kernel, void** arguments, void** extra) {
  const Launch launch(__builtin_return_address(0), kDriverName, kernel, driver_stream_of(config));
  return launch([=] { return pass_on<kCuLaunchKernelEx>(config, kernel, arguments, extra); });
}
