"""Words of a launch, and the copy of the packing that emitted files carry."""

import struct
from pathlib import Path
from typing import Any

import torch

from kernelwright import codegen
from kernelwright.codegen.kernel_text import TEMPLATES
from kernelwright.program.abi import Missing, pack

_TEMPLATE = Path(codegen.__file__).parent / "templates" / "script.py.jinja"


def test_words_of_a_launch() -> None:
    x = torch.empty(4, 6)[:, 1::2]
    packed = pack([x, Missing(2), 0.5, 3, True], device=1, stream=2, workspace=-4)
    (half,) = struct.unpack("q", struct.pack("d", 0.5))
    words = [1, 2, -4, x.data_ptr(), 2, 4, 3, 6, 2, 0, 2, 1, 1, 0, 0, half, 3, 1]
    assert list(struct.unpack(f"{len(words)}q", packed)) == words


def test_emitted_files_pack_the_same_words() -> None:
    text = _TEMPLATE.read_text()
    packing = TEMPLATES.from_string(text[text.index("def _words(") : text.index("def _run(")])
    names: dict[str, Any] = {"struct": struct, "torch": torch}
    exec(packing.render(has_numbers=True), names)
    arguments = [torch.empty(3, 2, 5).transpose(0, 2), torch.empty(()), -0.25, 2**40, False]
    assert names["_packed"]([0, 0, 0, *names["_words"](arguments)]) == pack(arguments)
