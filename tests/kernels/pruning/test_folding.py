"""Conditions on constants are decided where they mean one thing, and left alone elsewhere."""

import pytest

from kernelwright.kernels.pruning.constants import facts, known
from kernelwright.kernels.pruning.folding import fold

CONFIG = """
enum class Feed { SPLIT, AHEAD };
struct Config {
  static constexpr int STAGES = 3, CLUSTER = 2;
  static constexpr Feed FEED = Feed::AHEAD;
  static constexpr bool ON = true, OFF = !ON;
};
"""

DECIDED = {
    "if constexpr (Config::STAGES > 2) {\n  a();\n} else {\n  b();\n}": "a();",
    "if constexpr (Tile::FEED == Feed::SPLIT) {\n  a();\n} else {\n  b();\n}": "b();",
    "if (OFF) a();\nb();": "b();",
    "if (OFF || x) a();": "if (x) a();",
    "if (ON && x && OFF) a();\nb();": "b();",
    "if constexpr (x) {\n  a();\n} else if constexpr (ON) {\n  b();\n} else {\n  c();\n}": (
        "if constexpr (x) {\n  a();\n} else {\n  b();\n}"
    ),
    "if (x) {\n  a();\n} else if constexpr (OFF) {\n  b();\n}": "if (x) {\n  a();\n}",
    "for (;;) if constexpr (OFF) a();": "for (;;) {}",
    "f(CLUSTER == 2 ? a : b, c);": "f(a, c);",
    "int x = OFF ? 1 : ON ? 2 : 3;": "int x = 2;",
    "int x = y + (ON ? 1 : 2);": "int x = y + 1;",
    "int x = y * (ON ? a.f(1 + z)[2] : 2);": "int x = y * a.f(1 + z)[2];",
    "int x = y * (ON ? a + b : 2);": "int x = y * (a + b);",
    "int x = y * (ON ? -a : 2) + (z ? ON ? p : q : r);": "int x = y * (-a) + (z ? p : r);",
    "int x = OFF && y ? 1 : 2;": "int x = 2;",
    "  int f() const {\n    if (ON) return a;\n    return b;\n  }": "  int f() const { return a; }",
    "for (;;) {\n  if constexpr (ON) a();\n}": "for (;;) {\n  a();\n}",
    "const bool z = x && (OFF || y);": "const bool z = x && y;",
    "return STAGES * CLUSTER == 6 && OFF;": "return false;",
    "return ON && x == 1;": "return x == 1;",
    "if (OFF || (x && y)) a();": "if (x && y) a();",
    "if (ON && (x ? y : z)) a();": "if ((x ? y : z)) a();",
    "void f() {\n  const bool z = x && OFF;\n  if (ON || z) a();\n}": "void f() { a(); }",
    "if (ON) {\n  return a;\n}\n#pragma unroll\nfor (;;) b();": "return a;",
    "if (ON) {\n  for (;;) x[0] = 1;\n  return x;\n}\ny = x;": "for (;;) x[0] = 1;\nreturn x;",
    '  // Why.\n  static_assert(STAGES >= 2, "two");\n  int x;': "  int x;",
    "if constexpr (ON) {\n  return a;\n}\nreturn b;": "return a;",
    # Names that live on would mean something else.
    "int i = 1;\nif constexpr (ON) {\n  int i = 2;\n  a(i);\n}": (
        "int i = 1;\n{\n  int i = 2;\n  a(i);\n}"
    ),
    "int i = 1;\nfor (;;) {\n  if constexpr (ON) {\n    int i = 2;\n  }\n  a(i);\n}": (
        "int i = 1;\nfor (;;) {\n  {\n    int i = 2;\n  }\n  a(i);\n}"
    ),
}

LEFT = (
    "if (x) a();",
    "if constexpr (sizeof(T) == 4) a();",
    "if (Is<T>::value && ON2) a();",
    "f<A, CLUSTER == 2>(x ? a : b);",
    "switch (x) {\n  case 1:\n    if constexpr (STRANGE) return 1;\n  case 2:\n    return 2;\n}",
    "return ON && x;",  # may be no bool by itself
    "if (std::numeric_limits<T>::STAGES == 3) a();",
    "if (Config::STAGES - 4 < 0) a();",  # no number that every type has
)

SPOILED = {
    "another value": "struct Other { static constexpr int STAGES = 4; };",
    "another type": "struct Other { static constexpr bool STAGES = true; };",
    "a template parameter": "template <int STAGES> void f();",
    "a pack": "template <int... STAGES> void f();",
    "a parameter of some type": "template <class T, T STAGES> void f();",
    "a variable": "void f() { int STAGES = g(); }",
    "a pointer": "void f(int* STAGES) {}",
    "a type": "using STAGES = int;",
    "an enumerator": "enum Kind { OTHER, STAGES };",
    "an array": "static constexpr int STAGES[2] = {3, 3};",
    "what the text does not say": "struct Other { static constexpr int STAGES = sizeof(int); };",
}

QUESTION = "if constexpr (Config::STAGES == 3) a();"


def _folded(code: str, *more: str) -> str:
    return fold(code, known(facts(text) for text in (CONFIG, *more)))


@pytest.mark.parametrize("code", DECIDED)
def test_decided(code: str) -> None:
    assert _folded(code) == DECIDED[code]


@pytest.mark.parametrize("code", LEFT)
def test_left_alone(code: str) -> None:
    assert _folded(code) == code


@pytest.mark.parametrize("why", SPOILED)
def test_a_name_with_another_meaning_is_not_known(why: str) -> None:
    assert _folded(QUESTION) == "a();"
    assert _folded(QUESTION, SPOILED[why]) == QUESTION


OTHER = "struct Other { static constexpr int STAGES = 5; static constexpr bool ON = false; };"
"""The second value of two constants."""


@pytest.mark.parametrize(
    ("code", "folded"),
    [
        ("if constexpr (Config::STAGES > 2) a();", "a();"),
        ("if constexpr (STAGES == 4 || STAGES > 5) a();\nb();", "b();"),
        ("int x = STAGES % 2 == 1 ? 1 : 2;", "int x = 1;"),
        ("if (STAGES == 3) a();", None),
        ("if (ON) a();", None),
        # Of two types.
        ("if (A::STAGES == B::STAGES) a();", None),
        ("if (A::ON || !B::ON) a();", None),
    ],
)
def test_a_name_with_a_few_values_decides_what_is_the_same_for_all(
    code: str, folded: str | None
) -> None:
    assert _folded(code, OTHER) == (folded or code)
    tile = "struct Tile { static constexpr int ROWS = STAGES * 2, HALF = STAGES > 3 ? 1 : 2; };"
    assert _folded("if (ROWS >= 6 && HALF < 3) a();", OTHER, tile) == "a();"
    assert _folded("if (ROWS > 6) a();", OTHER, tile) == "if (ROWS > 6) a();"


def test_a_field_that_the_text_does_not_read_stays() -> None:
    fields = "struct Known {\n  static const bool IS_IN = true;\n  bool is_out = false;\n};"
    assert _folded(f"{fields}\nint x = ON ? 1 : 2;") == f"{fields}\nint x = 1;"


def test_constants_that_are_copied_and_computed() -> None:
    tile = "struct Tile { static constexpr int STAGES = Config::STAGES, BYTES = STAGES * 4; };"
    assert _folded(QUESTION, tile) == "a();"
    assert _folded("if (Tile::BYTES == 12) a();", tile) == "a();"
    later = "struct Tile { static constexpr int STAGES = Other::STAGES; };"
    assert fold(QUESTION, known([facts(later)])) == QUESTION


def test_labels_behind_a_return_are_reached() -> None:
    code = "switch (x) {\n  case 1:\n    if constexpr (ON) return 1;\n  case 2:\n    return 2;\n}"
    assert "case 2:\n    return 2;" in _folded(code)
