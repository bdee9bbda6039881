// Names of functions that a library does not export, as kernels in an anonymous namespace are.
#pragma once

#include <string>

namespace kwemu {

// The symbol of a function, from the symbol table of the file that it was loaded from; empty where
// that has none.
std::string local_symbol(const void* function);

}  // namespace kwemu
