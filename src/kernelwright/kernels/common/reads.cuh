#pragma once

// The types of the operands that one of a kernel's expressions reads.
template <class... Ts>
struct Reads {};
