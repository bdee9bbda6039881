"""One case on the card: the reference and the emitted module with the same weights and inputs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernelwright.problem import Instance, execute, load_problem
from matmul_parts.building import Emitted, load
from matmul_parts.cases import Case
from matmul_parts.distributions import Fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Both modules and their arguments, all on the card."""

    reference: nn.Module
    ours: nn.Module
    inputs: list[Tensor]

    def fill(self, case: Case, fill: Fill, seed: int) -> None:
        """Other values for the two factors, weights included, in place."""
        torch.manual_seed(seed)
        lhs, rhs = case.factors(self.reference, self.inputs)
        fill(lhs, rhs)
        if case.triangular:
            lhs.triu_()
            rhs.triu_()
        self.ours.load_state_dict(self.reference.state_dict())


def prepare(emitted: Emitted, seed: int = 0) -> Contest:
    """Make both modules and the problem's own inputs; fp32 products stay fp32 products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)
    instance = on_the_card(emitted)
    ours = load(emitted.path).ModelNew(*instance.init_args, **instance.init_kwargs).cuda()
    ours.load_state_dict(instance.module.state_dict())
    return Contest(reference=instance.module, ours=ours, inputs=list(instance.inputs))


def on_the_card(emitted: Emitted) -> Instance:
    """The reference, its random numbers drawn on the card: gigabytes of them in milliseconds."""
    definition = execute(load_problem(emitted.problem))
    args, kwargs = definition.make_init_inputs()
    with torch.device("cuda"):
        inputs = definition.make_inputs()
        module = definition.build(args, kwargs)
    return Instance(
        model_class=definition.model_class,
        init_args=args,
        init_kwargs=kwargs,
        inputs=inputs,
        module=module.cuda(),
    )
