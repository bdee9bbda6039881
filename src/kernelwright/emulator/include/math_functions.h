// The emulator has one header for all of it.
#pragma once

#include "cuda_runtime.h"
