// How a library of ours finds functions of the CUDA runtime that a process has loaded.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int visit(dl_phdr_info* info, size_t, void* data) {
  auto& [name, found] = *static_cast<std::pair<const char*, void*>*>(data);
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* file = slash == nullptr ? info->dlpi_name : slash + 1;
  if (std::strncmp(file, "libcudart.so", 12) != 0 && std::strncmp(file, "libcuda.so", 10) != 0) {
    return 0;
  }
  void* const library = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
  if (library != nullptr) found = dlsym(library, name);
  return found != nullptr;
}

// The true function: PyTorch loads its CUDA libraries where RTLD_NEXT does not look.
template <typename Function>
Function find(const char* name) {
  void* address = dlsym(RTLD_NEXT, name);
  if (address == nullptr) {
    std::pair<const char*, void*> search{name, nullptr};
    dl_iterate_phdr(visit, &search);
    address = search.second;
  }
  return reinterpret_cast<Function>(address);
}

}  // namespace
