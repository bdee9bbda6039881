"""timm's own small models for tests, and some of its layers."""

import timm
import torch
from timm import layers
from timm.layers.cbam import CbamModule
from timm.layers.grn import GlobalResponseNorm

X = torch.rand(2, 3, 64, 64)
MAP = torch.rand(2, 16, 8, 8)
ROWS = torch.rand(2, 6, 16)

NAMES = (
    *("test_vit", "test_vit2", "test_vit3", "test_vit4", "test_resnet", "test_byobnet"),
    *("test_efficientnet", "test_efficientnet_gn", "test_efficientnet_ln"),
    *("test_efficientnet_evos", "test_nfnet", "test_mambaout"),
    *("test_convnext", "test_convnext2", "test_convnext3"),
)

FULL = (
    *("mixer_s32_224", "resmlp_12_224", "gmixer_12_224", "convmixer_768_32", "poolformer_s12"),
    *("repvgg_a0", "ghostnet_050", "hardcorenas_a", "tinynet_e", "lcnet_035", "regnetx_002"),
    *(
        "edgenext_xx_small",
        "starnet_s1",
        "inception_next_atto",
        "mobilevitv2_050",
        "xcit_nano_12_p16_224",
    ),
    *("levit_128s", "pit_ti_224", "cait_xxs24_224", "fastvit_t8", "dla34", "crossvit_tiny_240"),
)
"""Networks as they are published, with random weights."""
FIXED = {"crossvit_tiny_240": 240, "convmixer_768_32": 64, "repvgg_a0": 64, "ghostnet_050": 64}
"""Sizes of pictures other than 224."""


def _model(name):
    sized = {"img_size": 64} if "vit" in name else {}
    return timm.create_model(name, num_classes=10, **sized).eval()


def _full(name):
    model = timm.create_model(name, pretrained=False, num_classes=10).eval()
    side = FIXED.get(name, 224)
    return model, (torch.rand(2, 3, side, side),), {}


MODULES = {
    **{name: lambda name=name: _full(name) for name in FULL},
    **{name: lambda name=name: (_model(name), (X,), {}) for name in NAMES},
    "Mlp": lambda: (layers.Mlp(16, 32).eval(), (ROWS,), {}),
    "SwiGLU": lambda: (layers.SwiGLU(16, 32).eval(), (ROWS,), {}),
    "EcaModule": lambda: (layers.EcaModule(16), (MAP,), {}),
    "SEModule": lambda: (layers.SEModule(16), (MAP,), {}),
    "CbamModule": lambda: (CbamModule(16).eval(), (MAP,), {}),
    "BlurPool2d": lambda: (layers.BlurPool2d(16), (MAP,), {}),
    "GlobalResponseNorm": lambda: (GlobalResponseNorm(16, channels_last=False), (MAP,), {}),
    "LayerNorm2d": lambda: (layers.LayerNorm2d(16), (MAP,), {}),
}
