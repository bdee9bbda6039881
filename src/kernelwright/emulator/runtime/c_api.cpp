// What Python calls, through ctypes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "export.h"
#include "runtime.h"

namespace {

// A number or a truth value of a flat JSON object; `otherwise` if the key is missing.
double number_of(const std::string& json, const char* key, double otherwise) {
  const std::string quoted = '"' + std::string(key) + '"';
  size_t at = json.find(quoted);
  if (at == std::string::npos) return otherwise;
  at = json.find(':', at + quoted.size());
  if (at == std::string::npos) return otherwise;
  at = json.find_first_not_of(" \t\n", at + 1);
  if (at == std::string::npos) return otherwise;
  if (json.compare(at, 4, "true") == 0) return 1;
  if (json.compare(at, 5, "false") == 0) return 0;
  return std::strtod(json.c_str() + at, nullptr);
}

// Writes `text` with a closing zero, as far as `size` goes; the size that all of it needs.
size_t give(const std::string& text, char* buffer, size_t size) {
  if (size > 0) {
    const size_t copied = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return text.size() + 1;
}

}  // namespace

// Settings not named keep their values:
//   {"order_seed": 0, "threads": 1, "max_findings": 100, "time_limit": 0.0, "stall_limit": 2.0,
//    "check_bounds": true, "check_alignment": true, "check_uninitialised": true,
//    "check_races": true, "multiprocessors": 132, "silent": false}
extern "C" KWEMU_EXPORT void kwemu_configure(const char* json_text) {
  const std::string json(json_text);
  kwemu::Settings& settings = kwemu::Runtime::instance().settings();
  settings.order_seed = static_cast<unsigned>(number_of(json, "order_seed", settings.order_seed));
  settings.threads = static_cast<unsigned>(number_of(json, "threads", settings.threads));
  settings.time_limit_seconds = number_of(json, "time_limit", settings.time_limit_seconds);
  settings.stall_seconds = number_of(json, "stall_limit", settings.stall_seconds);
  settings.check_bounds = number_of(json, "check_bounds", settings.check_bounds) != 0;
  settings.check_alignment = number_of(json, "check_alignment", settings.check_alignment) != 0;
  settings.check_uninitialised =
      number_of(json, "check_uninitialised", settings.check_uninitialised) != 0;
  settings.check_races = number_of(json, "check_races", settings.check_races) != 0;
  settings.silent = number_of(json, "silent", settings.silent) != 0;
  settings.multiprocessors =
      static_cast<int>(number_of(json, "multiprocessors", settings.multiprocessors));
  const double limit = number_of(json, "max_findings", -1);
  if (limit >= 0) kwemu::Report::instance().set_limit(static_cast<size_t>(limit));
}

// Writes the findings as a JSON array with a closing zero, as far as `size` goes. Returns the size
// that the whole text needs: call with (null, 0) first.
extern "C" KWEMU_EXPORT size_t kwemu_findings(char* buffer, size_t size) {
  return give(kwemu::Report::instance().json(), buffer, size);
}

// The launches since the last clear as a JSON object, kernel's name to count; as above.
extern "C" KWEMU_EXPORT size_t kwemu_launches(char* buffer, size_t size) {
  return give(kwemu::Runtime::instance().launches_json(), buffer, size);
}

extern "C" KWEMU_EXPORT void kwemu_forget_launches() {
  kwemu::Runtime::instance().forget_launches();
}

// Forgets findings and faults: the device is as new.
extern "C" KWEMU_EXPORT void kwemu_clear() {
  kwemu::Report::instance().clear();
  kwemu::Runtime::instance().forget_fault();
}

// The cudaError_t of a fault that abandoned a launch, 0 if there was none since the last clear.
extern "C" KWEMU_EXPORT int kwemu_fault() { return kwemu::Runtime::instance().fault(); }

extern "C" KWEMU_EXPORT unsigned long long kwemu_launch_count() {
  return kwemu::Runtime::instance().launch_count();
}

// Memory that device code may touch. Whole storages, not views of them.
extern "C" KWEMU_EXPORT void kwemu_register(const void* memory, size_t bytes, const char* name) {
  kwemu::Registry::instance().add(reinterpret_cast<uintptr_t>(memory), bytes, name);
}

extern "C" KWEMU_EXPORT void kwemu_unregister(const void* memory) {
  kwemu::Registry::instance().remove(reinterpret_cast<uintptr_t>(memory));
}

// Poisoned memory between redzones, registered under `name`; null if there is none.
extern "C" KWEMU_EXPORT void* kwemu_allocate(size_t bytes, const char* name) {
  return kwemu::allocate_checked(bytes, name);
}

extern "C" KWEMU_EXPORT void kwemu_free(void* memory) { kwemu::free_checked(memory); }
