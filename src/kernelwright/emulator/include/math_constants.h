// Constants by their device names.
#pragma once

#include <math.h>

#include <limits>

#define CUDART_INF_F (std::numeric_limits<float>::infinity())
#define CUDART_NAN_F (std::numeric_limits<float>::quiet_NaN())
#define CUDART_MIN_DENORM_F (std::numeric_limits<float>::denorm_min())
#define CUDART_MAX_NORMAL_F (std::numeric_limits<float>::max())
#define CUDART_NEG_ZERO_F (-0.0f)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_PI_F (static_cast<float>(M_PI))
#define CUDART_PIO2_F (static_cast<float>(M_PI_2))
#define CUDART_PIO4_F (static_cast<float>(M_PI_4))
#define CUDART_SQRT_TWO_F (static_cast<float>(M_SQRT2))
#define CUDART_SQRT_HALF_F (static_cast<float>(M_SQRT1_2))
#define CUDART_L2E_F (static_cast<float>(M_LOG2E))
#define CUDART_LN2_F (static_cast<float>(M_LN2))
#define CUDART_INF (std::numeric_limits<double>::infinity())
#define CUDART_NAN (std::numeric_limits<double>::quiet_NaN())
#define CUDART_ZERO 0.0
#define CUDART_ONE 1.0
#define CUDART_PI M_PI
#define CUDART_SQRT_TWO M_SQRT2
#define CUDART_L2E M_LOG2E
#define CUDART_LN2 M_LN2
