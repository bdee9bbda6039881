"""Which of a candidate's parameters and buffers stand for which of the reference's.

Both modules are made under one seed, so tensors that mean the same have the same values, whatever
they are called. A file with other names computes the right thing all the same: it is given other
weights through this correspondence.
"""

from collections.abc import Sequence

from kernelwright.verify.cases import Weights
from kernelwright.verify.observation import Links, StateFacts, StateLink, TensorFacts

COMPARED_WEIGHTS = (Weights.DRAWN, Weights.LOADED)
"""Weights that depend on how a file makes its tensors, or on what it calls them."""


def same_keys(expected: StateFacts, found: StateFacts) -> bool:
    """Whether both have the same names, shapes and dtypes in the same order."""
    return [_form(it) for it in expected.tensors] == [_form(it) for it in found.tensors]


def link_state(expected: StateFacts, found: StateFacts) -> Links:
    """What of `found` has the values of what in `expected`, both made under one seed.

    Equal names belong together; then, where several have the same values, those at the same place
    among them. All copies of a tensor whose name there is not stand for it.
    """
    links: list[StateLink] = []
    for mark in dict.fromkeys(it.fingerprint for it in expected.tensors):
        names = [it.name for it in expected.tensors if it.fingerprint == mark]
        others = [it.name for it in found.tensors if it.fingerprint == mark]
        links += _linked(names, others)
    places = {it.name: place for place, it in enumerate(expected.tensors)}
    return tuple(sorted(links, key=lambda link: places[link.reference]))


def _linked(names: Sequence[str], others: Sequence[str]) -> list[StateLink]:
    """Links between tensors that all have the same values."""
    if len(names) == 1 and names[0] not in others:
        return [StateLink(reference=names[0], candidate=other) for other in others]
    same = [name for name in names if name in others]
    pairs = zip(
        [name for name in names if name not in same],
        [other for other in others if other not in same],
        strict=False,  # more on one side: those have no counterpart
    )
    return [
        *(StateLink(reference=name, candidate=name) for name in same),
        *(StateLink(reference=name, candidate=other) for name, other in pairs),
    ]


def without_counterpart(
    expected: StateFacts, found: StateFacts, links: Links | None
) -> tuple[str, ...]:
    """The reference's tensors for which nothing of `found` stands with the same values."""
    marks = {it.name: it.fingerprint for it in found.tensors}
    stands = {(link.reference, marks.get(link.candidate)) for link in _all(expected, links)}
    return tuple(it.name for it in expected.tensors if (it.name, it.fingerprint) not in stands)


def _all(expected: StateFacts, links: Links | None) -> Links:
    """`links`; for None each tensor with the one of its own name."""
    if links is not None:
        return links
    return tuple(StateLink(reference=it.name, candidate=it.name) for it in expected.tensors)


def _form(facts: TensorFacts) -> tuple[object, ...]:
    return facts.name, facts.dtype, facts.shape


def put_back(touched: tuple[str, ...], links: Links | None) -> tuple[str, ...]:
    """What of it is to be as before the call: the state that stands for the reference's.

    Whatever else a file keeps in buffers stays there from call to call, as it would for anybody.
    """
    if links is None:
        return touched
    standing = {f"state.{link.candidate}" for link in links}
    return tuple(name for name in touched if name in standing)


def names_in_reference(touched: Sequence[str], links: Links | None) -> dict[str, str]:
    """The reference's names for what a call touched, and the module's own; each once."""
    if links is None:
        return {name: name for name in touched}
    names = {name: name for name in touched if not name.startswith("state.")}
    for link in links:
        own = f"state.{link.candidate}"
        if own in touched:
            names.setdefault(f"state.{link.reference}", own)
    return names
