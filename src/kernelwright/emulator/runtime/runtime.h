// The one emulated device: settings, workers, the last error.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "launch_state.h"
#include "worker.h"

namespace kwemu {

class Runtime {
 public:
  static Runtime& instance();

  Settings& settings() { return settings_; }
  // Runs a launch to its end. Returns its cudaError_t.
  int run(Launch& launch);
  // Dynamic shared memory of a block: 48 KB, or what was asked for the kernel.
  void allow_shared(const void* kernel, size_t bytes);
  // `body`: a function of the library that launches it.
  size_t shared_limit(const char* kernel, const void* body);
  // Blocks that a cluster may have: 8, or 16 where that was asked for the kernel.
  void allow_wide_clusters(const void* kernel);
  unsigned cluster_limit(const char* kernel, const void* body);
  const char* kernel_name(const void* kernel);
  unsigned long long launch_count() const { return launch_count_; }
  // Launches since the last clear as a JSON object, kernel's name to count.
  std::string launches_json();

  // Errors as cudaGetLastError gives them: those of a fault inside a kernel stay.
  int last_error() const { return fault_ != 0 ? fault_ : last_error_; }
  int take_last_error();
  int remember(int error);
  int fault() const { return fault_; }
  void forget_fault() { fault_ = last_error_ = 0; }
  void forget_launches();

  // The host waits, or copies: no launch is left running.
  void finish_launches() { before_ = {}; }

 private:
  // What was asked for one kernel.
  struct Allowed {
    Allowed(const void* kernel, size_t bytes);
    bool may_be(std::string kernel, const void* body) const;

    const void* library;
    std::string symbol;
    size_t bytes;
  };

  // What the launch before the next one leaves running.
  struct Before {
    unsigned launch = Overlap::kNone;
    unsigned oldest_running = Overlap::kNone;
    bool has_waited = true;
    bool lets_next_start_early = false;
  };

  Record next_launch_tag(const Launch& launch);
  void begin_overlap(Launch& launch) const;
  void end_overlap(const Launch& launch);

  std::mutex mutex_;  // launches run one after another
  Settings settings_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<const void*, Allowed> shared_limits_;  // by kernel
  std::map<const void*, Allowed> wide_clusters_;
  std::set<std::string> names_;
  unsigned long long launch_count_ = 0;
  std::map<std::string, unsigned long long> launches_;  // by the kernels' names
  unsigned launch_tag_ = 0;
  Before before_;
  int last_error_ = 0;
  int fault_ = 0;
};

}  // namespace kwemu
