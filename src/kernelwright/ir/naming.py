"""Names of new nodes."""


def fresh_name(stem: str, taken: set[str]) -> str:
    """The stem, numbered when it is taken; it is taken from now on."""
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name
