// The one emulated device: settings, workers, the last error.
#pragma once

#include <memory>
#include <mutex>
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
  unsigned long long launch_count() const { return launch_count_; }

  // Errors as cudaGetLastError gives them: those of a fault inside a kernel stay.
  int last_error() const { return fault_ != 0 ? fault_ : last_error_; }
  int take_last_error();
  int remember(int error);
  int fault() const { return fault_; }
  void forget_fault() { fault_ = last_error_ = 0; }

 private:
  Record next_launch_tag();

  std::mutex mutex_;  // launches run one after another
  Settings settings_;
  std::vector<std::unique_ptr<Worker>> workers_;
  unsigned long long launch_count_ = 0;
  unsigned launch_tag_ = 0;
  int last_error_ = 0;
  int fault_ = 0;
};

}  // namespace kwemu
