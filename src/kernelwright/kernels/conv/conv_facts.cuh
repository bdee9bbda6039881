#pragma once
// What convolutions may have, as far as it is known where this text is compiled: see
// gemm_facts.cuh.

constexpr bool ANY_LINEAR = true;         // patches that are runs of pixels (conv_linear.cuh)
constexpr bool ANY_JOINED = true;         // phases or outputs that are rows of the filter
constexpr bool ANY_STORED_ROWS = true;    // channels that leave one by one
constexpr bool ANY_LATE = true;           // steps that run where elements are stored
constexpr bool ANY_WINDOWS = true;        // results reduced over windows
constexpr bool ANY_CHANNEL_FOLDS = true;  // and over channels
constexpr bool ANY_PROGRAMS = true;       // and those of which a program is made (conv_rows.cuh)
constexpr bool ANY_MOMENTS = true;        // moments of channels (conv_moments.cuh)
