#pragma once
// What products may have, as far as it is known where this text is compiled. An emitted file says
// of each whether any product in it has that, and is without the text for what none has.

constexpr bool ANY_BATCHES = true;    // more than two dimensions
constexpr bool ANY_EXTRAS = true;     // operands that join the result
constexpr bool ANY_REPEATED = true;   // extras that have one value for a row
constexpr bool ANY_LOCATED = true;    // an epilogue that asks where its element stands
constexpr bool ANY_TRIANGLES = true;  // results of which a part is zero
constexpr bool ANY_PERMUTED = true;   // planes that number K as gemm_sm90_raw.cuh reads them
constexpr bool ANY_SLICES = true;     // K in parts, which the last kernel adds
constexpr bool ANY_SHORT = true;      // factors of 16 bits
constexpr bool ANY_TF32 = true;       // factors of 32 bits on the tensor cores, one product of each
constexpr bool ANY_SIMT_MN = true;    // tiles on the CUDA cores of factors that lie along M or N
constexpr bool ANY_SIMT_K = true;     // and along K
constexpr bool ANY_OTHER_SIZES = true;  // calls of sizes that the tuned variant is not for
constexpr bool ANY_PATCHES = true;      // rows that are what a filter meets of images
constexpr bool ANY_EDGES = true;      // tiles that a result does not fill, results without vectors
constexpr bool ANY_TURNED = true;     // factors that have to be read fast whatever their strides
constexpr bool ANY_TOGETHER = true;   // several products of one left factor in one launch
constexpr bool ANY_FEW_STEPS = true;  // units of so few steps that warpgroups take turns
constexpr bool ANY_EXTREMES = true;   // results of which a row keeps the largest or the smallest
constexpr bool ANY_COLUMN_MOMENTS = true;  // moments of columns beside the result
