#pragma once
// Whether rows become pairs of fp16 numbers, which a product reads next, as far as it is known
// where this text is compiled: see gemm_facts.cuh and gemm_paired.cuh.

constexpr bool ANY_PAIRED = true;

// Of the type of a result in memory, as row_paired.cuh has it. A program says whether its rows are
// pairs in this launch (in_pairs).
template <class T>
constexpr bool IS_PAIRED = false;
