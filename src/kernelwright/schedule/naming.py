"""Names of kernels, which say what they do."""

from collections.abc import Iterable, Sequence

_LONGEST = 5
"""Operators in a name; the rest become "and_more"."""


def kernel_name(operators: Sequence[str], taken: Iterable[str]) -> str:
    """`("linear", "relu", "div")` -> `"linear_relu_div"`, numbered when the name is taken."""
    words = [word.strip("_") for word in operators if word]
    parts = words[:_LONGEST] + (["and_more"] if len(words) > _LONGEST else [])
    stem = "_".join(parts) or "elementwise"
    name, number = stem, 2
    used = set(taken)
    while name in used:
        name, number = f"{stem}_{number}", number + 1
    return name


def merge_operators(*groups: Sequence[str]) -> tuple[str, ...]:
    """Operators in order, neighbouring repetitions of one call (linear, linear) said once."""
    merged: list[str] = []
    for word in (word for group in groups for word in group):
        if not merged or merged[-1] != word:
            merged.append(word)
    return tuple(merged)
