class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int, divisor: float) -> None:
        if [in_features, out_features, divisor] != [*get_init_inputs()]:
            raise ValueError(
                "ModelNew is specialised to its constructor arguments: expected "
                f"{[*get_init_inputs()]}, got {[in_features, out_features, divisor]}"
            )
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        device = getattr(x, "device", None)
        _expect("x", x, torch.float32, (None, 8192), device)
        x_size0 = x.shape[0]
        linear_ = self.linear
        _expect("linear.weight", linear_.weight, torch.float32, (8192, 8192), device)
        _expect("linear.bias", linear_.bias, torch.float32, (8192,), device)
        div = torch.empty((x_size0, 8192), dtype=torch.float32, device=device)
        _launch("launch_linear_relu_div", div, x, linear_.weight.t(), linear_.bias)
        return div


def get_inputs():
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, DIVISOR]


class InputError(TypeError, ValueError):
    """An argument or a parameter that `forward` does not take; nothing has run yet."""
