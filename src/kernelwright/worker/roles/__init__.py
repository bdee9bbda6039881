"""What runs inside a child: reference, candidate, clock, and the checks beside them."""
