// What is seen outside of the library: all else is hidden.
#pragma once

#define KWEMU_EXPORT __attribute__((visibility("default")))
