"""Has no ModelNew."""

Model = None
