// The driver's types: the emulator has one header for all of them.
#pragma once

#include "cuda_runtime.h"
