"""The parts of benchmarks/matmul.py: cases, building, timing, accuracy, and who runs what."""
