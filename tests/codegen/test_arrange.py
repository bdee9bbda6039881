"""The operands that a launcher gets multiply to the contraction's result."""

import pytest
import torch

from kernelwright.codegen.arrange import product_of
from kernelwright.ir.kinds import Contract
from kernelwright.schedule.roles import Roles, roles

SIZES = dict(zip("abcde", (2, 3, 4, 5, 6), strict=True))


@pytest.mark.parametrize(
    "letters",
    [
        "ab,bc->ac",
        "ba,bc->ac",
        "ab,cb->ac",
        "ba,cb->ac",
        "bc,ab->ac",
        "cb,ba->ac",
        "b,bc->c",
        "ab,b->a",
        "b,cb->c",
        "abc,acd->abd",
        "abc,cd->abd",
        "bc,acd->abd",
        "abce,aecd->abcd",
        "ac,acd->ad",
        "dc,abc->abd",
        "cab,ced->abed",
        "ae,be->ab",
        "abe,aec->bac",
        "abce,aecd->acbd",
        "be,aec->bac",
        "abe,bec->abc",
        "dabe,bec->dabc",
        "bdae,dec->bdac",
    ],
)
def test_product(letters: str) -> None:
    operands, out = letters.split("->")
    contract = Contract(*operands.split(","), out)
    if not isinstance(roles(contract), Roles):
        pytest.skip(str(roles(contract)))
    lhs, rhs = (torch.randn([SIZES[x] for x in word]) for word in operands.split(","))
    expected = torch.einsum(letters, lhs, rhs)
    result = torch.empty(expected.shape)
    product = product_of(contract)
    left, right = (rhs, lhs) if product.swapped else (lhs, rhs)
    # Native calls count from the front.
    views = (product.out, product.left, product.right, product.joined(len(out)))
    assert all(position >= 0 for view in views for position in view.unsqueeze)
    names = {"result": result, "left": left, "right": right}
    target, left, right = (
        eval(view.text(name), names)
        for view, name in (
            (product.out, "result"),
            (product.left, "left"),
            (product.right, "right"),
        )
    )
    target.copy_(left @ right)
    torch.testing.assert_close(result, expected)
    for rank in range(expected.dim() + 1):
        joins = torch.randn(expected.shape[expected.dim() - rank :])
        text = product.joined(rank).text("joins")
        target.copy_(left @ right + eval(text, {"joins": joins}))
        torch.testing.assert_close(result, expected + joins)
