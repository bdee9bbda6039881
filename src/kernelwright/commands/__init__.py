"""The commands of the script, one function each; `kernelwright.cli` has the list."""
