#include "runtime.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "device_limits.h"
#include "local_symbols.h"

namespace kwemu {

std::atomic<bool> stopping{false};

namespace {

// Ends a launch that takes too long.
class Watchdog {
 public:
  Watchdog(Launch& launch, double seconds) {
    if (seconds <= 0) return;
    thread_ = std::thread([this, &launch, seconds] {
      std::unique_lock lock(mutex_);
      const auto limit = std::chrono::duration<double>(seconds);
      if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
      Finding finding;
      finding.kind = FindingKind::kDeadlock;
      finding.kernel = launch.kernel;
      finding.place = launch.place;
      finding.message = "the launch did not end within " + std::to_string(seconds) + " seconds";
      Report::instance().add(std::move(finding));
      launch.abandon(702 /* cudaErrorLaunchTimeout */);
    });
  }
  ~Watchdog() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

struct Range {
  uintptr_t low = 0;
  size_t bytes = 0;
};

// The running thread's stack. Asking reads /proc, so it is asked once per thread.
Range find_host_stack() {
  Range stack;
#if defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return stack;
  void* low = nullptr;
  pthread_attr_getstack(&attributes, &low, &stack.bytes);
  pthread_attr_destroy(&attributes);
  stack.low = reinterpret_cast<uintptr_t>(low);
#endif
  return stack;
}

}  // namespace

// Seed 1 goes backwards; others step through by a number coprime to the count.
Order::Order(uint64_t count, unsigned seed) : count_(count) {
  if (seed == 0 || count < 2) return;
  step_ = count - 1;
  start_ = count - 1;
  if (seed == 1) return;
  const uint64_t mixed = (seed * 0x9e3779b97f4a7c15ull) >> 20;
  start_ = mixed % count;
  step_ = mixed / 7 % std::min<uint64_t>(count, 1u << 30) | 1;
  while (std::gcd(step_, count) != 1) step_ += 2;
}

Allocation* Launch::find(uintptr_t address) const {
  auto after = std::upper_bound(allocations.begin(), allocations.end(), address,
                                [](uintptr_t a, const Allocation* b) { return a < b->low; });
  if (after == allocations.begin()) return nullptr;
  Allocation* allocation = *--after;
  if (settings->check_races && allocation->writable) {
    static std::mutex making;
    const std::lock_guard lock(making);
    if (!allocation->shadow.exists()) allocation->shadow = Shadow(allocation->bytes);
  }
  return allocation;
}

void Launch::abandon(int new_error) {
  int none = 0;
  if (new_error != 0) error.compare_exchange_strong(none, new_error);
  stopping.store(true);
}

Runtime& Runtime::instance() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

int Runtime::take_last_error() {
  const int error = last_error();
  last_error_ = 0;
  return error;
}

int Runtime::remember(int error) {
  if (error != 0) last_error_ = error;
  return error;
}

namespace {

// The symbol of a function, empty if it has none.
std::string symbol_of(const void* function) {
  Dl_info info;
  const bool known = dladdr(function, &info) != 0 && info.dli_saddr == function;
  return known && info.dli_sname != nullptr ? info.dli_sname : "";
}

// Where the library begins that a function lies in.
const void* library_of(const void* function) {
  Dl_info info;
  return dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

Runtime::Allowed::Allowed(const void* kernel, size_t bytes)
    : library(library_of(kernel)), symbol(symbol_of(kernel)), bytes(bytes) {}

// A launch knows its kernel as the source spells it: "ns::kernel<float>". The symbol holds the
// bare name; one without a symbol may be any kernel of its library.
bool Runtime::Allowed::may_be(std::string kernel, const void* body) const {
  kernel = kernel.substr(0, kernel.find('<'));
  kernel = kernel.substr(kernel.find_last_of(": ") + 1);
  return library == library_of(body) &&
         (symbol.empty() || symbol.find(kernel) != std::string::npos);
}

void Runtime::allow_shared(const void* kernel, size_t bytes) {
  const std::lock_guard lock(mutex_);
  shared_limits_.insert_or_assign(kernel, Allowed(kernel, bytes));
}

size_t Runtime::shared_limit(const char* kernel, const void* body) {
  const std::lock_guard lock(mutex_);
  size_t limit = kSharedBytes;
  for (const auto& [_, one] : shared_limits_) {
    if (one.may_be(kernel, body)) limit = std::max(limit, one.bytes);
  }
  return limit;
}

void Runtime::allow_wide_clusters(const void* kernel) {
  const std::lock_guard lock(mutex_);
  wide_clusters_.insert_or_assign(kernel, Allowed(kernel, 0));
}

unsigned Runtime::cluster_limit(const char* kernel, const void* body) {
  const std::lock_guard lock(mutex_);
  const bool is_wide =
      std::any_of(wide_clusters_.begin(), wide_clusters_.end(),
                  [&](const auto& one) { return one.second.may_be(kernel, body); });
  return is_wide ? kBlocksPerWideCluster : kBlocksPerCluster;
}

const char* Runtime::kernel_name(const void* kernel) {
  std::string name = symbol_of(kernel);
  if (name.empty()) name = local_symbol(kernel);
  int status = -1;
  char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (status == 0) {
    const std::string unnamed = "(anonymous namespace)::";
    name = plain;
    if (name.compare(0, unnamed.size(), unnamed) == 0) name.erase(0, unnamed.size());
    name = name.substr(0, std::min(name.find('('), name.find('<')));
    name = name.substr(name.find_last_of(": ") + 1);
  }
  std::free(plain);
  const std::lock_guard lock(mutex_);
  return names_.insert(name.empty() ? "kernel" : name).first->c_str();
}

std::string Runtime::launches_json() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, count] : launches_) {
    // Names are C++ as the source spells it, in which nothing needs an escape.
    text += (text.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(count);
  }
  return text.empty() ? "{}" : text + "}";
}

void Runtime::forget_launches() {
  const std::lock_guard lock(mutex_);
  launches_.clear();
}

Record Runtime::next_launch_tag(const Launch& launch) {
  // Tags begin again, and shadows are forgotten, where no launch before this one may still run.
  // Only in a long row of launches that start early what one of them overlaps is forgotten, too.
  const bool is_apart = !launch.config.may_start_early;
  if (++launch_tag_ > (is_apart ? kMaxLaunch / 2 : kMaxLaunch)) {
    Registry::instance().clear_shadows();
    launch_tag_ = 1;
    before_ = {};
  }
  return Record{launch_tag_} << kLaunchShift;
}

void Runtime::begin_overlap(Launch& launch) const {
  if (!launch.config.may_start_early || before_.launch == Overlap::kNone) return;
  Overlap& overlap = launch.overlap;
  const bool more = before_.oldest_running != Overlap::kNone;
  overlap.oldest_running =
      more && before_.lets_next_start_early ? before_.oldest_running : before_.launch;
  overlap.oldest_unwaited = more && !before_.has_waited ? before_.oldest_running : Overlap::kNone;
}

void Runtime::end_overlap(const Launch& launch) {
  before_.launch = launch_tag_;
  before_.oldest_running = launch.overlap.oldest_running;
  before_.has_waited = launch.overlap.blocks_that_waited == launch.block_count;
  before_.lets_next_start_early = launch.overlap.lets_next_start_early;
}

int Runtime::run(Launch& launch) {
  const std::lock_guard lock(mutex_);
  if (fault_ != 0) return fault_;
  ++launch_count_;
  ++launches_[launch.kernel];
  if (settings_.silent) return 0;
  launch.settings = &settings_;
  launch.allocations = Registry::instance().snapshot();
  launch.tag = next_launch_tag(launch);
  begin_overlap(launch);
  thread_local const Range stack = find_host_stack();
  launch.host_stack_low = stack.low;
  launch.host_stack_bytes = stack.bytes;
  launch.order = Order(launch.cluster_count(), settings_.order_seed);
  if (settings_.check_races && launch.block_count < kMaxBlock) {
    launch.released = std::make_unique<std::atomic<uint32_t>[]>(launch.block_count);
  }
  const auto count = static_cast<unsigned>(
      std::min<uint64_t>(std::max(1u, settings_.threads), launch.cluster_count()));
  while (workers_.size() < count) workers_.push_back(std::make_unique<Worker>());
  launch.active_workers = count;
  stopping.store(false);
  {
    const Watchdog watchdog(launch, settings_.time_limit_seconds);
    std::vector<std::thread> others;
    for (unsigned i = 1; i < count; ++i) {
      others.emplace_back([&launch, worker = workers_[i].get()] { worker->work(launch); });
    }
    workers_[0]->work(launch);
    for (std::thread& other : others) other.join();
  }
  stopping.store(false);
  end_overlap(launch);
  if (launch.error != 0) fault_ = launch.error;
  return fault_;
}

}  // namespace kwemu
