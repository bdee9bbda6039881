"""Conditions as far as known constants decide them."""

from collections.abc import Iterator, Sequence

from kernelwright.kernels.pruning.constants import Known, Undecided, evaluate
from kernelwright.kernels.pruning.edits import text_of
from kernelwright.kernels.pruning.tokens import Token, closing, tokenise


def simplified(
    code: str, tokens: Sequence[Token], begin: int, end: int, known: Known
) -> bool | str:
    """The value of a condition, or as much of its text as is not decided."""
    if begin < end and tokens[begin].text == "(" and closing(tokens, begin) == end - 1:
        inner = simplified(code, tokens, begin + 1, end - 1, known)
        return inner if isinstance(inner, bool) else _in_parentheses(inner)
    outside = list(top_level(tokens, begin, end))
    texts = [tokens[i].text for i in outside]
    for operator, decisive in (("||", True), ("&&", False)):
        if operator in texts and not {"?", ","} & set(texts):
            cuts = [i for i in outside if tokens[i].text == operator]
            spans = zip([begin, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True)
            parts = [(span, simplified(code, tokens, *span, known)) for span in spans]
            if any(value is decisive for _, value in parts):
                return decisive
            left = [(span, value) for span, value in parts if isinstance(value, str)]
            if len(left) == 1 and len(parts) > 1:
                return _bare(left[0][1])
            return _joined(code, tokens, left) if left else not decisive
    try:
        value = evaluate(tokens[begin:end], known)
    except Undecided:
        return text_of(code, tokens, begin, end)
    return value if isinstance(value, bool) else text_of(code, tokens, begin, end)


def _joined(
    code: str, tokens: Sequence[Token], parts: Sequence[tuple[tuple[int, int], str]]
) -> str:
    """What is left of the operands of one operator, each behind the operator as it was."""
    text = ""
    for (begin, _), value in parts:
        if text:
            text += code[tokens[begin - 2].end : tokens[begin].start]
        text += value
    return text


def _in_parentheses(text: str) -> str:
    """As an operand: without parentheses where none are needed."""
    tokens = tokenise(text)
    outside = {tokens[i].text for i in top_level(tokens, 0, len(tokens))}
    return f"({text})" if {"&&", "||", "?"} & outside else text


def _bare(text: str) -> str:
    """What alone is left of an operator's operands, without parentheses around it."""
    tokens = tokenise(text)
    is_enclosed = tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1
    inside = {tokens[i].text for i in top_level(tokens, 1, len(tokens) - 1)}
    return text[tokens[0].end : tokens[-1].start] if is_enclosed and "?" not in inside else text


def top_level(tokens: Sequence[Token], begin: int, end: int) -> Iterator[int]:
    """Indices outside all brackets."""
    while begin < end:
        if tokens[begin].text in ("(", "[", "{"):
            begin = closing(tokens, begin)
        else:
            yield begin
        begin += 1
