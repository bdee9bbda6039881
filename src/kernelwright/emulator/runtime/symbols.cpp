#include "symbols.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kwemu {
namespace {

// The emulator's own headers: of a chain of inlined calls the user's frame counts.
constexpr const char* kOwnHeaders = "/emulator/include/";

struct Query {
  const void* address;
  uintptr_t offset;
};

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// "file:line" or "file:line (discriminator 3)".
SourceLine parse_location(const std::string& text) {
  const std::string location = text.substr(0, text.find(" (discriminator"));
  const size_t colon = location.rfind(':');
  if (colon == std::string::npos || location.compare(0, 2, "??") == 0) return {};
  return {location.substr(0, colon), std::atoi(location.c_str() + colon + 1)};
}

// Output of `addr2line -a -i`: an address line "0x...", then one location per inlined frame.
void read_answers(std::FILE* pipe, const std::vector<Query>& queries,
                  std::map<const void*, SourceLine>& lines) {
  char buffer[4096];
  size_t next = 0;
  const void* current = nullptr;
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    std::string text(buffer);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.compare(0, 2, "0x") == 0 && text.find(':') == std::string::npos) {
      current = next < queries.size() ? queries[next++].address : nullptr;
      continue;
    }
    const SourceLine line = parse_location(text);
    if (current == nullptr || line.line == 0) continue;
    SourceLine& known = lines[current];
    const bool own = known.file.find(kOwnHeaders) != std::string::npos;
    if (known.line == 0 || own) known = line;
  }
}

}  // namespace

SymbolTable::SymbolTable(const std::vector<const void*>& return_addresses) {
  std::map<std::string, std::vector<Query>> by_module;
  for (const void* address : return_addresses) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) continue;
    // The call is before the address it returns to.
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1;
    by_module[info.dli_fname].push_back({address, offset});
  }
  for (const auto& [module, queries] : by_module) {
    std::string command = "addr2line -a -i -e " + shell_quoted(module);
    char offset[32];
    for (const Query& query : queries) {
      std::snprintf(offset, sizeof offset, " 0x%llx",
                    static_cast<unsigned long long>(query.offset));
      command += offset;
    }
    std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
    if (pipe == nullptr) continue;
    read_answers(pipe, queries, lines_);
    pclose(pipe);
  }
}

SourceLine SymbolTable::find(const void* return_address) const {
  const auto found = lines_.find(return_address);
  return found != lines_.end() ? found->second : SourceLine{};
}

}  // namespace kwemu
