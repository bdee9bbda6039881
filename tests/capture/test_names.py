"""Names of nodes, of which loops ask for many."""

from kernelwright.capture.names import Names


def test_numbers_go_on_and_come_back() -> None:
    names = Names()
    names.take({"mul_2"})
    assert [names.claim("mul") for _ in range(3)] == ["mul", "mul_1", "mul_3"]
    for name in ("mul_3", "mul_1"):
        names.release(name)
    assert [names.claim("mul") for _ in range(3)] == ["mul_1", "mul_3", "mul_4"]


def test_names_are_those_of_python() -> None:
    names = Names()
    assert [names.claim(it) for it in ("in", "2d.conv", "_._")] == [
        "in_1",
        "value_2d_conv",
        "value",
    ]
