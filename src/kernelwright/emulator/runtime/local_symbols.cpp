#include "local_symbols.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

namespace kwemu {
namespace {

using Symbols = std::map<uintptr_t, std::string>;  // by offset in the library

template <class T>
const T* at(const std::vector<char>& file, size_t offset, size_t count = 1) {
  const bool is_inside = offset <= file.size() && count <= (file.size() - offset) / sizeof(T);
  return is_inside ? reinterpret_cast<const T*>(file.data() + offset) : nullptr;
}

Symbols read_symbols(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(stream), {}};
  Symbols symbols;
  const auto* header = at<Elf64_Ehdr>(file, 0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return symbols;
  const auto* sections = at<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  for (int i = 0; sections != nullptr && i < header->e_shnum; ++i) {
    const Elf64_Shdr& table = sections[i];
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
    const Elf64_Shdr& names = sections[table.sh_link];
    const size_t count = table.sh_size / sizeof(Elf64_Sym);
    const auto* entries = at<Elf64_Sym>(file, table.sh_offset, count);
    const char* text = at<char>(file, names.sh_offset, names.sh_size);
    for (size_t j = 0; entries != nullptr && text != nullptr && j < count; ++j) {
      const bool is_function = ELF64_ST_TYPE(entries[j].st_info) == STT_FUNC;
      if (!is_function || entries[j].st_name >= names.sh_size) continue;
      symbols.emplace(entries[j].st_value, text + entries[j].st_name);
    }
  }
  return symbols;
}

}  // namespace

std::string local_symbol(const void* function) {
  static std::mutex mutex;
  static std::map<std::string, Symbols> by_file;
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::lock_guard lock(mutex);
  const auto [library, is_new] = by_file.try_emplace(info.dli_fname);
  if (is_new) library->second = read_symbols(info.dli_fname);
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase);
  const auto found = library->second.find(offset);
  return found != library->second.end() ? found->second : "";
}

}  // namespace kwemu
