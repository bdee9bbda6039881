"""Models of transformers, of one layer and with random weights; skipped where it is missing.

Graph and plan are compared with an eager call: structure, classes, shapes, dtypes and values.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from kernelwright.capture import UnsupportedValueError, capture_module
from kernelwright.checking import check_plan
from kernelwright.emulator import Session
from kernelwright.ir.calls import instances
from kernelwright.machine import H200
from kernelwright.module import capture_in_memory, optimize_module
from kernelwright.schedule import Library, plan_graph
from kernelwright.verify.nesting import named_results

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

IDS = torch.arange(14).reshape(2, 7) + 3
COMMON = {
    **{"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 32, "max_position_embeddings": 32},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


@pytest.fixture(scope="module")
def hf() -> Any:
    return pytest.importorskip("transformers")


def bert(hf: Any) -> Made:
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    return hf.BertModel(hf.BertConfig(**COMMON)), (IDS,), {"attention_mask": mask}


def gpt2(hf: Any) -> Made:
    config = hf.GPT2Config(**COMMON, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    return hf.GPT2LMHeadModel(config), (IDS,), {"logits_to_keep": 2}


def llama(hf: Any) -> Made:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**COMMON, num_key_value_heads=1)), (IDS,), {}


def t5(hf: Any) -> Made:
    config = hf.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return hf.T5EncoderModel(config), (), {"input_ids": IDS}


def clip(hf: Any) -> Made:
    picture = {**COMMON, "image_size": 16, "patch_size": 8}
    config = hf.CLIPConfig(text_config=COMMON, vision_config=picture, projection_dim=8)
    return hf.CLIPModel(config), (IDS, torch.rand(2, 3, 16, 16)), {}


def whisper(hf: Any) -> Made:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = hf.WhisperConfig(
        **{**COMMON, "d_model": 16, "num_mel_bins": 8, "max_source_positions": 10},
        **{"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32},
    )
    return WhisperEncoder(config), (torch.rand(2, 8, 20),), {}


def mamba(hf: Any) -> Made:
    config = hf.MambaConfig(**COMMON, state_size=4)
    return hf.MambaForCausalLM(config), (IDS[:, :4],), {"use_cache": False}


MODELS: dict[Callable[[Any], Made], list[str]] = {
    bert: ["BaseModelOutputWithPoolingAndCrossAttentions"],
    gpt2: ["CausalLMOutputWithCrossAttentions", "DynamicCache"],
    llama: ["CausalLMOutputWithPast", "DynamicCache"],
    t5: ["BaseModelOutputWithPastAndCrossAttentions"],
    clip: ["CLIPOutput", "BaseModelOutputWithPooling", "BaseModelOutputWithPooling"],
    whisper: ["BaseModelOutput"],
    mamba: ["MambaCausalLMOutput"],
}


@torch.no_grad()
@pytest.mark.timeout(400)  # a dozen kernels are compiled
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_graph_plan_and_kernels_are_the_model(
    make: Callable[[Any], Made], hf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, args, kwargs = make(hf)
    model.eval()
    graph = capture_in_memory(model, args, kwargs)
    assert [instance.name for instance in instances(graph.returns)] == MODELS[make]
    plan = plan_graph(graph, H200, Library.NEVER).plan
    assert plan.kernels
    checks = check_plan(model, args, kwargs, graph, plan)
    assert [str(check) for check in checks if not check.agrees] == []
    # Half of the time went to capturing: once is enough.
    monkeypatch.setattr("kernelwright.module.capture_in_memory", lambda *_: graph)
    with Session() as session:
        fast = optimize_module(model, args, kwargs, machine=H200)
        # Each result against the model's own and a run in float64.
        assert fast.kernelwright.set_aside == ""
        assert fast.kernelwright.checks
        session.take_launches()
        # The emulator knows no memory that was taken before it was there.
        taken, named = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        found = fast(*taken, **named)
        assert sum(session.take_launches().values()) > 3
        assert session.findings == ()
    expected = model(*args, **kwargs)
    assert type(found) is type(expected)
    # Tensors in its caches as well.
    results = (dict(named_results(it, "result")) for it in (found, expected))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_a_cache_of_another_kind_is_refused(hf: Any) -> None:
    model, args, _ = mamba(hf)
    with pytest.raises(
        UnsupportedValueError, match="DynamicCache with a LinearAttentionLayer"
    ) as e:
        capture_module(model.eval(), args)
    assert "use_cache=False" in e.value.next_step
