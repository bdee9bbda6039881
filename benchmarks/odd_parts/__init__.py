"""What benchmarks/odd_sizes.py measures, and how."""
