"""Fails while it is imported, as load_inline does."""

raise RuntimeError(
    "Error building extension 'affine': [1/2] nvcc affine.cu\n"
    'affine.cu(3): error: identifier "y" is undefined\n'
    "1 error detected"
)
