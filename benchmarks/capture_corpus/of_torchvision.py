"""Models and layers of torchvision; its compiled part is not needed."""

import collections
from functools import partial

import torch
from torch import nn
from torchvision import ops
from torchvision.models import (
    convnext,
    densenet,
    efficientnet,
    maxvit,
    mnasnet,
    mobilenetv2,
    mobilenetv3,
    resnet,
    segmentation,
    shufflenetv2,
    squeezenet,
    swin_transformer,
    vision_transformer,
)
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.googlenet import GoogLeNet
from torchvision.models.video import resnet as video

X = torch.rand(2, 3, 32, 32)
FILM = torch.rand(1, 3, 4, 16, 16)
MAPS = collections.OrderedDict(a=torch.rand(1, 8, 8, 8), b=torch.rand(1, 16, 4, 4))


def _resnet(block=resnet.BasicBlock, **options):
    return resnet.ResNet(block, [1, 1, 1, 1], num_classes=10, **options).eval()


def _segmenter(kind, head):
    small = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
    return kind(IntermediateLayerGetter(small, {"layer4": "out"}), head(512, 5)).eval()


def _video(convolution):
    return video.VideoResNet(
        video.BasicBlock, [convolution] * 4, [1] * 4, video.BasicStem, num_classes=5
    ).eval()


def _mobilenet_v3():
    row = mobilenetv3.InvertedResidualConfig
    rows = [row(16, 3, 16, 16, 1, "RE", 1, 1, 1), row(16, 5, 64, 24, 1, "HS", 2, 1, 1)]
    return mobilenetv3.MobileNetV3(rows, 64, num_classes=10).eval()


def _efficientnet():
    rows = [
        efficientnet.MBConvConfig(1, 3, 1, 16, 16, 1),
        efficientnet.MBConvConfig(4, 5, 2, 16, 24, 1),
    ]
    return efficientnet.EfficientNet(rows, dropout=0.2, num_classes=10).eval()


def _convnext():
    rows = [convnext.CNBlockConfig(16, 32, 1), convnext.CNBlockConfig(32, None, 1)]
    return convnext.ConvNeXt(rows, num_classes=10).eval()


def _swin(**options):
    return swin_transformer.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10, **options
    ).eval()


def _maxvit():
    return maxvit.MaxVit(
        input_size=(32, 32),
        stem_channels=8,
        partition_size=4,
        block_channels=[8, 16],
        block_layers=[1, 1],
        head_dim=8,
        stochastic_depth_prob=0.0,
        num_classes=10,
    ).eval()


def _vit():
    return vision_transformer.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=10).eval()


MODULES = {
    "ResNet": lambda: (_resnet(), (X,), {}),
    "ResNeXt": lambda: (_resnet(resnet.Bottleneck, groups=32, width_per_group=4), (X,), {}),
    "ResNet, training": lambda: (_resnet().train(), (X,), {}),
    "DenseNet": lambda: (densenet.DenseNet(8, (2, 2), 16, num_classes=10).eval(), (X,), {}),
    "SqueezeNet": lambda: (squeezenet.SqueezeNet("1_1", num_classes=10).eval(), (X,), {}),
    "MobileNetV2": lambda: (
        mobilenetv2.MobileNetV2(10, 1.0, [[1, 16, 1, 1], [6, 24, 2, 2]]).eval(),
        (X,),
        {},
    ),
    "MobileNetV3": lambda: (_mobilenet_v3(), (X,), {}),
    "ShuffleNetV2": lambda: (
        shufflenetv2.ShuffleNetV2([1, 1, 1], [24, 48, 96, 192, 64], num_classes=10).eval(),
        (X,),
        {},
    ),
    "MNASNet": lambda: (mnasnet.MNASNet(0.5, num_classes=10).eval(), (X,), {}),
    "GoogLeNet, training": lambda: (
        GoogLeNet(10, init_weights=False, aux_logits=True).train(),
        (torch.rand(2, 3, 64, 64),),
        {},
    ),
    "EfficientNet": lambda: (_efficientnet(), (X,), {}),
    "ConvNeXt": lambda: (_convnext(), (X,), {}),
    "VisionTransformer": lambda: (_vit(), (X,), {}),
    "Swin": lambda: (_swin(), (X,), {}),
    "Swin v2": lambda: (
        _swin(
            block=swin_transformer.SwinTransformerBlockV2,
            downsample_layer=swin_transformer.PatchMergingV2,
        ),
        (X,),
        {},
    ),
    "MaxVit": lambda: (_maxvit(), (X,), {}),
    "FCN": lambda: (
        _segmenter(segmentation.FCN, segmentation.fcn.FCNHead),
        (torch.rand(2, 3, 64, 64),),
        {},
    ),
    "DeepLabV3": lambda: (
        _segmenter(segmentation.DeepLabV3, segmentation.deeplabv3.DeepLabHead),
        (torch.rand(2, 3, 64, 64),),
        {},
    ),
    "VideoResNet": lambda: (_video(video.Conv3DSimple), (FILM,), {}),
    "VideoResNet (2+1)D": lambda: (_video(video.Conv2Plus1D), (FILM,), {}),
    "FeaturePyramidNetwork": lambda: (ops.FeaturePyramidNetwork([8, 16], 8), (MAPS,), {}),
    "MLP": lambda: (ops.MLP(16, [32, 8], norm_layer=nn.LayerNorm).eval(), (torch.rand(4, 16),), {}),
    "SqueezeExcitation": lambda: (ops.SqueezeExcitation(8, 4), (torch.rand(2, 8, 6, 6),), {}),
    "Conv2dNormActivation": lambda: (
        ops.Conv2dNormActivation(3, 8, activation_layer=partial(nn.SiLU)),
        (X,),
        {},
    ),
}
