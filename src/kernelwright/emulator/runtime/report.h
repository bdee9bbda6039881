// Findings: what the checks have to say.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kwemu/vector_types.h"

namespace kwemu {

enum class FindingKind : int {
  kOutOfBounds,
  kMisaligned,
  kUninitialisedRead,
  kRace,
  kBarrierDivergence,
  kDeadlock,
  kUnsupported,
};

// A place in the user's source: known by file and line, or by the address of code.
struct Place {
  const char* file = nullptr;
  int line = 0;
  const void* code = nullptr;  // return address of the access

  static Place at(const char* file, int line) { return Place{file, line, nullptr}; }
  static Place of(const void* code) { return Place{nullptr, 0, code}; }
};

struct Finding {
  FindingKind kind = FindingKind::kUnsupported;
  const char* kernel = "";  // lives as long as the unit
  Place place;
  dim3 block{0, 0, 0};
  dim3 thread{0, 0, 0};
  std::optional<dim3> other_block;
  std::optional<dim3> other_thread;
  Place other_place;  // unknown: neither file nor code
  std::string message;
  unsigned long long count = 1;
};

// Collects findings from all workers; one per kind, kernel and place.
class Report {
 public:
  static Report& instance();

  void add(Finding finding);
  // Whether such a finding is known already; counts it if so.
  bool repeats(FindingKind kind, const char* kernel, const Place& place);
  void clear();
  void set_limit(size_t limit) { limit_ = limit; }
  // A JSON array; code addresses become files and lines here.
  std::string json();

 private:
  // Kind, kernel, and a place: strings by their addresses.
  using Key = std::tuple<FindingKind, const char*, const char*, int, const void*>;

  std::mutex mutex_;
  std::map<Key, size_t> index_;
  std::vector<Finding> findings_;
  size_t limit_ = 100;
};

}  // namespace kwemu
