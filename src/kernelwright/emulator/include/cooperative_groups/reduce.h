// The emulator has one header for all of it.
#pragma once

#include "cooperative_groups.h"
