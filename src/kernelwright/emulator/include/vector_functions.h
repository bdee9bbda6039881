// The emulator has one header for all of it.
#pragma once

#include "kwemu/vector_types.h"
