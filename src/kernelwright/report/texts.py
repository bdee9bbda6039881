"""Sources and graphs as a page carries them: every paragraph once, all of them packed together.

    shelf = Shelf()
    places = shelf.put(text)     # "0-41,7,50-52"
    packed = shelf.packed()      # base64 of gzip of a JSON list of paragraphs

Kernels are written with the helpers that they use, so the files of a run have most of their text in
common: 18 MB of 125 problems are 5 MB of paragraphs. gzip alone looks back 32 KB and finds little
of that.
"""

import base64
import gzip
import json

_BETWEEN = "\n\n"


class Shelf:
    """Paragraphs by number, in the order in which they first came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def put(self, text: str) -> str:
        """Which paragraphs `text` is made of: numbers and ranges, both ends included."""
        runs: list[list[int]] = []
        for paragraph in text.split(_BETWEEN):
            number = self._numbers.setdefault(paragraph, len(self._numbers))
            if runs and runs[-1][1] + 1 == number:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

    def packed(self) -> str:
        """All paragraphs so far; a text is the numbered ones with blank lines between."""
        # No time in the header: the same run gives the same page.
        return base64.b64encode(
            gzip.compress(json.dumps(list(self._numbers)).encode(), mtime=0)
        ).decode()
