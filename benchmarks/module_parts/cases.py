"""Twenty-four modules at the sizes of their papers, those that tell most first.

A case makes its module with random weights, in eval mode, and the arguments of a call, in fp32 on
the CPU. Its package may be missing: then making it raises ImportError.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from module_parts.networks import Block, DiffusionBlock, Kan, PointNet, Tagger, UNet

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and what it is called with."""


def cast(made: Made, device: torch.device, dtype: torch.dtype) -> Made:
    """The module and its arguments on a device, all that is fp32 in another type."""
    module, args, kwargs = made

    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(device, dtype if value.is_floating_point() else None)

    values = tuple(moved(it) for it in args)
    return module.to(device, dtype), values, {name: moved(it) for name, it in kwargs.items()}


def _pictures(count: int, side: int = 224) -> Tensor:
    return torch.rand(count, 3, side, side)


def _tokens(batch: int, length: int, words: int = 30000) -> Tensor:
    return torch.randint(0, words, (batch, length))


def _vision(name: str, count: int = 32, side: int = 224) -> Made:
    from torchvision import models

    return getattr(models, name)().eval(), (_pictures(count, side),), {}


def _deeplab() -> Made:
    from torchvision.models import segmentation

    made = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    return made.eval(), (_pictures(4, 512),), {}


def _timm(name: str, count: int) -> Made:
    import timm

    return timm.create_model(name, pretrained=False).eval(), (_pictures(count),), {}


def _hf(model: str, config: str, options: Mapping[str, Any], keywords: dict[str, Any]) -> Made:
    import transformers

    made = getattr(transformers, config)(**options)
    return getattr(transformers, model)(made).eval(), (), keywords


def _llama() -> Made:
    options = {
        **{"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816},
        **{"num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4},
    }
    keywords = {"input_ids": _tokens(4, 512), "use_cache": False}
    return _hf("LlamaForCausalLM", "LlamaConfig", options, keywords)


def _whisper() -> Made:
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8}
    config = transformers.WhisperConfig(**sizes, encoder_ffn_dim=2048)
    return WhisperEncoder(config).eval(), (torch.rand(4, 80, 3000),), {}


def _clip() -> Made:
    keywords = {"input_ids": _tokens(16, 77), "pixel_values": _pictures(16)}
    return _hf("CLIPModel", "CLIPConfig", {}, keywords)


def _mamba() -> Made:
    options = {"hidden_size": 768, "num_hidden_layers": 2, "vocab_size": 30000}
    keywords = {"input_ids": _tokens(4, 64), "use_cache": False}
    return _hf("MambaForCausalLM", "MambaConfig", options, keywords)


def _diffusion() -> Made:
    return DiffusionBlock().eval(), (torch.rand(8, 320, 32, 32), torch.arange(8) * 100), {}


_LONG = {"use_cache": False}

CASES: Mapping[str, Callable[[], Made]] = {
    "resnet50": lambda: _vision("resnet50"),
    "BERT": lambda: _hf("BertModel", "BertConfig", {}, {"input_ids": _tokens(16, 256)}),
    "GPT-2": lambda: _hf(
        "GPT2LMHeadModel", "GPT2Config", {}, {"input_ids": _tokens(8, 512), **_LONG}
    ),
    "Llama-style": _llama,
    "vit_b_16": lambda: _vision("vit_b_16"),
    "convnext_tiny": lambda: _vision("convnext_tiny"),
    "UNet": lambda: (UNet().eval(), (_pictures(8, 256),), {}),
    "RMSNorm-RoPE-SwiGLU block": lambda: (Block().eval(), (torch.rand(8, 1024, 1024),), {}),
    "swin_t": lambda: _vision("swin_t"),
    "efficientnet_b0": lambda: _vision("efficientnet_b0"),
    "densenet121": lambda: _vision("densenet121"),
    "mobilenet_v3_large": lambda: _vision("mobilenet_v3_large"),
    "mixer_b16_224": lambda: _timm("mixer_b16_224", 32),
    "T5 encoder": lambda: _hf(
        "T5EncoderModel", "T5Config", {"num_layers": 6}, {"input_ids": _tokens(8, 512)}
    ),
    "diffusion block": _diffusion,
    "PointNet": lambda: (PointNet().eval(), (torch.rand(32, 1024, 3),), {}),
    "KAN": lambda: (Kan().eval(), (torch.rand(8192, 256),), {}),
    "LSTM tagger": lambda: (Tagger().eval(), (_tokens(64, 128, 20000),), {}),
    "Whisper encoder": _whisper,
    "CLIP": _clip,
    "deeplabv3": _deeplab,
    "coatnet_0_rw_224": lambda: _timm("coatnet_0_rw_224", 16),
    "maxvit_tiny_rw_224": lambda: _timm("maxvit_tiny_rw_224", 16),
    "Mamba": _mamba,
}
