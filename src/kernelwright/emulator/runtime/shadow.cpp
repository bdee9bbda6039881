#include "shadow.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kwemu {
namespace {

size_t word_cells(size_t data_bytes) { return (data_bytes + 3) / 4 + 1; }
size_t byte_cells(size_t data_bytes) { return word_cells(data_bytes) * 4; }

Cell* reserve(size_t cells) {
  void* range = mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr, "kernelwright emulator: no address space for the race checker\n");
    std::abort();
  }
  return static_cast<Cell*>(range);
}

}  // namespace

Shadow::Shadow(size_t data_bytes)
    : words_(reserve(word_cells(data_bytes))),
      bytes_(reserve(byte_cells(data_bytes))),
      data_bytes_(data_bytes) {}

Shadow::~Shadow() {
  if (words_ == nullptr) return;
  munmap(words_, word_cells(data_bytes_) * sizeof(Cell));
  munmap(bytes_, byte_cells(data_bytes_) * sizeof(Cell));
}

Shadow::Shadow(Shadow&& other) noexcept
    : words_(std::exchange(other.words_, nullptr)),
      bytes_(std::exchange(other.bytes_, nullptr)),
      data_bytes_(std::exchange(other.data_bytes_, 0)) {}

Shadow& Shadow::operator=(Shadow&& other) noexcept {
  std::swap(words_, other.words_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_bytes_, other.data_bytes_);
  return *this;
}

void Shadow::clear() {
  if (words_ == nullptr) return;
  madvise(words_, word_cells(data_bytes_) * sizeof(Cell), MADV_DONTNEED);
  madvise(bytes_, byte_cells(data_bytes_) * sizeof(Cell), MADV_DONTNEED);
}

void fill_with_poison(void* memory, size_t bytes) {
  char* to = static_cast<char*>(memory);
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) std::memcpy(to + i, &kPoison64, 8);
  std::memcpy(to + i, &kPoison64, bytes - i);
}

}  // namespace kwemu
