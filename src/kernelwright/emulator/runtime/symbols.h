// Addresses of code to lines of the user's source, by addr2line.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kwemu {

struct SourceLine {
  std::string file;
  int line = 0;
};

class SymbolTable {
 public:
  // Resolves all of `return_addresses` at once: one process per loaded module.
  explicit SymbolTable(const std::vector<const void*>& return_addresses);
  // File "" and line 0 if the module has no debug information.
  SourceLine find(const void* return_address) const;

 private:
  std::map<const void*, SourceLine> lines_;
};

}  // namespace kwemu
