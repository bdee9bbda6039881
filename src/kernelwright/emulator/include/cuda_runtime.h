// What nvcc puts in front of every CUDA source, and the host's runtime API.
#pragma once

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kwemu/abi.h"
#include "kwemu/atomics.h"
#include "kwemu/builtins.h"
#include "kwemu/device_math.h"
#include "kwemu/host_api.h"
#include "kwemu/host_launch.h"
#include "kwemu/intrinsics.h"
#include "kwemu/launch.h"
#include "kwemu/memory.h"
#include "kwemu/ptx.h"
#include "kwemu/ptx_hopper.h"
#include "kwemu/qualifiers.h"
#include "kwemu/shared.h"
#include "kwemu/sync.h"
#include "kwemu/vector_types.h"
#include "kwemu/warp.h"
