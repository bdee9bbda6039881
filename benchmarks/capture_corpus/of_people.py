"""Modules as people write them by hand: layers, small networks, and what PyTorch lets them do."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

IMAGE = torch.rand(2, 3, 32, 32)
ROWS = torch.rand(2, 6, 16)
SERIES = torch.rand(2, 16, 24)
TOKENS = torch.arange(12).reshape(2, 6)
POINTS = torch.rand(2, 20, 3)
VECTORS = torch.rand(4, 16)


# --- Blocks of language models -----------------------------------------------------------------


class RotarySwiGlu(nn.Module):
    """A block with RMS norm, rotary embedding, grouped heads and SwiGLU."""

    def __init__(self, width=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.queries = nn.Linear(width, width, bias=False)
        self.others = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.result = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        angles = torch.outer(torch.arange(64.0), 10000.0 ** -(torch.arange(0, 1, 2 / self.size)))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def turned(self, x):
        first, second = x[..., ::2], x[..., 1::2]
        cosine, sine = self.cosine[: x.shape[2]], self.sine[: x.shape[2]]
        both = (first * cosine - second * sine, first * sine + second * cosine)
        return torch.stack(both, dim=-1).flatten(-2)

    def forward(self, x):
        batch, length, width = x.shape
        normed = self.norms[0](x)
        q = self.queries(normed).view(batch, length, self.heads, self.size).transpose(1, 2)
        both = self.others(normed).view(batch, length, 2, self.groups, self.size)
        k, v = (it.repeat_interleave(self.heads // self.groups, dim=2) for it in both.unbind(2))
        q, k = self.turned(q), self.turned(k.transpose(1, 2))
        seen = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        x = x + self.result(seen.transpose(1, 2).reshape(batch, length, width))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class AlibiAttention(nn.Module):
    """Attention with a bias that grows with the distance, written out."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.inside = nn.Linear(width, 3 * width)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.inside(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        places = torch.arange(length, device=x.device)
        far = (places[None, :] - places[:, None]).abs()
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores - self.slopes[:, None, None] * far
        scores = scores.masked_fill(places[None, :] > places[:, None], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)


class CachedDecoder(nn.Module):
    """One step of decoding: keys and values come in, and longer ones go out."""

    def __init__(self, width=16):
        super().__init__()
        self.inside = nn.Linear(width, 3 * width)

    def forward(self, x, cache):
        q, k, v = self.inside(x).chunk(3, dim=-1)
        keys, values = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        return F.scaled_dot_product_attention(q, keys, values), (keys, values)


class Experts(nn.Module):
    """A mixture of experts: the best two of four, all of which are computed."""

    def __init__(self, width=16, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) / 4)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) / 4)

    def forward(self, x):
        scores = self.gate(x)
        best, which = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(-1, which, best.softmax(-1))
        hidden = torch.einsum("bld,edh->bleh", x, self.up).relu()
        return torch.einsum("bleh,ehd,ble->bld", hidden, self.down, weights)


class TiedLanguageModel(nn.Module):
    """Embedding and output share a weight."""

    def __init__(self, words=40, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.block = RotarySwiGlu(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.block(self.words(tokens)))


class LinearAttention(nn.Module):
    """Attention by running totals of outer products."""

    def __init__(self, width=16):
        super().__init__()
        self.inside = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.inside(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bld,ble->blde", k, v).cumsum(1)
        scale = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return torch.einsum("bld,blde->ble", q, state) / scale


class Perceiver(nn.Module):
    """Learned queries that look at everything."""

    def __init__(self, width=16, queries=4):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        queries = self.queries.expand(x.shape[0], -1, -1)
        return self.attention(queries, x, x, need_weights=False)[0]


# --- Pictures ----------------------------------------------------------------------------------


class UNet(nn.Module):
    """Two steps down, two up, with what was skipped."""

    def __init__(self, channels=8):
        super().__init__()
        c = channels
        self.ins = nn.ModuleList([self.block(3, c), self.block(c, 2 * c), self.block(2 * c, 4 * c)])
        self.ups = nn.ModuleList(
            [nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)]
        )
        self.outs = nn.ModuleList([self.block(4 * c, 2 * c), self.block(2 * c, c)])
        self.last = nn.Conv2d(c, 2, 1)

    @staticmethod
    def block(before, after):
        return nn.Sequential(
            *(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
        )

    def forward(self, x):
        first = self.ins[0](x)
        second = self.ins[1](F.max_pool2d(first, 2))
        x = self.ins[2](F.max_pool2d(second, 2))
        x = self.outs[0](torch.cat([self.ups[0](x), second], 1))
        return self.last(self.outs[1](torch.cat([self.ups[1](x), first], 1)))


class DiffusionBlock(nn.Module):
    """A residual block of a diffusion model, told the time."""

    def __init__(self, channels=16):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)])
        self.steps = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])
        self.time = nn.Linear(32, 2 * channels)

    def forward(self, x, time):
        rates = torch.exp(-math.log(10000) * torch.arange(16, device=x.device) / 16)
        angles = time[:, None].float() * rates
        told = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        scale, shift = told[:, :, None, None].chunk(2, 1)
        hidden = self.steps[0](F.silu(self.norms[0](x)))
        hidden = self.norms[1](hidden) * (1 + scale) + shift
        return x + self.steps[1](F.silu(hidden))


class Generator(nn.Module):
    """Noise to a picture, by transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.steps = nn.Sequential(
            *(nn.ConvTranspose2d(16, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh()),
        )

    def forward(self, noise):
        return self.steps(noise[:, :, None, None])


class SuperResolution(nn.Module):
    """Convolutions, then channels become pixels; the rest is a bicubic enlargement."""

    def __init__(self):
        super().__init__()
        self.steps = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(16))
        self.last = nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x):
        large = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return large + F.pixel_shuffle(self.last(self.steps(x)), 2)


class SpatialTransformer(nn.Module):
    """A network that says how its input is to be turned."""

    def __init__(self):
        super().__init__()
        self.where = nn.Linear(3, 6)
        self.where.bias.data = torch.tensor([1.0, 0, 0, 0, 1, 0])

    def forward(self, x):
        theta = self.where(x.mean((2, 3))).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False))


class ConvMixer(nn.Module):
    """Depthwise and pointwise convolutions in turns."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Conv2d(3, width, 4, 4)
        self.deep = nn.Conv2d(width, width, 5, groups=width, padding="same")
        self.wide = nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(3)])

    def forward(self, x):
        x = self.norms[0](F.gelu(self.first(x)))
        x = x + self.norms[1](F.gelu(self.deep(x)))
        return self.norms[2](F.gelu(self.wide(x))).mean((2, 3))


class Windows(nn.Module):
    """Windows of a picture, shifted by a roll, each with its attention."""

    def __init__(self, width=16, size=4):
        super().__init__()
        self.size = size
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        batch, height, wide, width = x.shape
        s = self.size
        x = x.roll((-s // 2, -s // 2), (1, 2))
        x = x.view(batch, height // s, s, wide // s, s, width).transpose(2, 3)
        x = x.reshape(-1, s * s, width)
        x = self.attention(x, x, x, need_weights=False)[0]
        x = x.view(batch, height // s, wide // s, s, s, width).transpose(2, 3)
        return x.reshape(batch, height, wide, width).roll((s // 2, s // 2), (1, 2))


class Patches(nn.Module):
    """Overlapping patches of a padded picture, as rows."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(3 * 25, 16)

    def forward(self, x):
        padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
        return self.inside(F.unfold(padded, 5, stride=4).transpose(1, 2))


class Discriminator(nn.Module):
    """Convolutions whose weights have a largest singular value of one."""

    def __init__(self):
        super().__init__()
        norm = parametrizations.spectral_norm
        self.steps = nn.Sequential(
            *(norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2)),
            *(norm(nn.Conv2d(8, 16, 4, 2, 1)), nn.LeakyReLU(0.2)),
        )

    def forward(self, x):
        return self.steps(x).mean((1, 2, 3))


class StyleConv(nn.Module):
    """A convolution whose weights depend on the sample: groups of a batch."""

    def __init__(self, channels=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3))
        self.style = nn.Linear(16, channels)

    def forward(self, x, style):
        batch, channels, height, width = x.shape
        weight = self.weight * (1 + self.style(style))[:, None, :, None, None]
        weight = weight * weight.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
        x = x.reshape(1, batch * channels, height, width)
        x = F.conv2d(x, weight.view(-1, channels, 3, 3), padding=1, groups=batch)
        return x.view(batch, channels, height, width)


# --- Sequences, points, tables -----------------------------------------------------------------


class Tagger(nn.Module):
    """Words, a bidirectional LSTM, a tag for each."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.states = nn.LSTM(16, 8, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(16, 5)

    def forward(self, tokens):
        return self.tags(self.states(self.words(tokens))[0]).log_softmax(-1)


class CellLoop(nn.Module):
    """A GRU cell in a loop of Python."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(16, 8)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 8)
        states = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states, 1)


class Smoothing(nn.Module):
    """An exponential moving average as a loop."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(16))

    def forward(self, x):
        rate, mean, means = self.rate.sigmoid(), x[:, 0], []
        for step in range(x.shape[1]):
            mean = rate * mean + (1 - rate) * x[:, step]
            means.append(mean)
        return torch.stack(means, 1)


class WaveBlock(nn.Module):
    """A gated dilated convolution of the past."""

    def __init__(self, channels=16):
        super().__init__()
        self.inside = nn.Conv1d(channels, 2 * channels, 2, dilation=4)
        self.outside = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        signal, gate = self.inside(F.pad(x, (4, 0))).chunk(2, 1)
        return x + self.outside(signal.tanh() * gate.sigmoid())


class PointNet(nn.Module):
    """A set of points, whose order does not count."""

    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn = nn.Linear(3, 9)

    def forward(self, points):
        turn = self.turn(points.mean(1)).view(-1, 3, 3) + torch.eye(3)
        return self.each((points @ turn).transpose(1, 2)).amax(-1)


class Neighbours(nn.Module):
    """Edges of the nearest neighbours of each point (DGCNN)."""

    def __init__(self, count=4):
        super().__init__()
        self.count = count
        self.each = nn.Linear(6, 8)

    def forward(self, points):
        near = torch.cdist(points, points).topk(self.count, largest=False).indices
        batch = torch.arange(points.shape[0])[:, None, None]
        others = points[batch, near]
        centre = points[:, :, None].expand_as(others)
        return self.each(torch.cat([centre, others - centre], -1)).relu().amax(2)


class GraphLayer(nn.Module):
    """Messages along edges, added where they arrive."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(16, 8)

    def forward(self, nodes, edges):
        sent = self.message(nodes)[edges[0]]
        return nodes.new_zeros(nodes.shape[0], 8).index_add(0, edges[1], sent)


class Kan(nn.Module):
    """A layer of learned curves on radial bases."""

    def __init__(self, inside=16, outside=8, bases=5):
        super().__init__()
        self.register_buffer("centres", torch.linspace(-1, 1, bases))
        self.weight = nn.Parameter(torch.randn(outside, inside, bases))
        self.base = nn.Linear(inside, outside)

    def forward(self, x):
        near = torch.exp(-(((x[..., None] - self.centres) * 2) ** 2))
        return self.base(F.silu(x)) + torch.einsum("...ib,oib->...o", near, self.weight)


class Radiance(nn.Module):
    """A network of coordinates: sines of them, and layers with a skip (NeRF)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(27, 32), nn.Linear(59, 4)

    def forward(self, points):
        scaled = (points[..., None] * 2.0 ** torch.arange(4)).flatten(-2)
        coded = torch.cat([points, scaled.sin(), scaled.cos()], -1)
        colour = self.second(torch.cat([self.first(coded).relu(), coded], -1))
        return torch.cat([colour[..., :3].sigmoid(), colour[..., 3:].relu()], -1)


class Clicks(nn.Module):
    """A recommender: embeddings of categories, all products of pairs (DLRM)."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3)])
        self.dense = nn.Linear(16, 8)
        self.last = nn.Linear(14, 1)
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1))

    def forward(self, dense, categories):
        first = self.dense(dense).relu()
        columns = categories.unbind(1)
        rows = [table(it[:, None]) for table, it in zip(self.tables, columns, strict=True)]
        rows = torch.stack([first, *rows], 1)
        products = (rows @ rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.last(torch.cat([first, products], 1)).sigmoid()


class Coupling(nn.Module):
    """A step of a normalising flow, with its log-determinant."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(8, 16)

    def forward(self, x):
        kept, changed = x.chunk(2, -1)
        scale, shift = self.inside(kept).chunk(2, -1)
        scale = scale.tanh()
        return torch.cat([kept, changed * scale.exp() + shift], -1), scale.sum(-1)


class Autoencoder(nn.Module):
    """A variational one in evaluation: the mean is decoded; the loss's second part comes too."""

    def __init__(self):
        super().__init__()
        self.inside, self.outside = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x):
        mean, log_variance = self.inside(x).chunk(2, -1)
        spread = torch.exp(0.5 * log_variance)
        code = mean + torch.randn_like(spread) * spread if self.training else mean
        distance = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return {"result": self.outside(code), "distance": distance}


class Contrast(nn.Module):
    """The loss of pictures and texts that belong together."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, pictures, texts):
        pictures, texts = F.normalize(pictures, dim=-1), F.normalize(texts, dim=-1)
        logits = self.scale.exp() * pictures @ texts.T
        labels = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


# --- What PyTorch lets them do -----------------------------------------------------------------


class Straight(torch.autograd.Function):
    """Rounding that lets gradients pass."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Quantised(nn.Module):
    """An autograd function of the user's own."""

    def forward(self, x):
        return Straight.apply(x * 7) / 7


class Checkpointed(nn.Module):
    """Activations that are computed again for gradients."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        return x + checkpoint(self.inside, x, use_reentrant=False)


class Mixed(nn.Module):
    """Autocast inside of forward."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(16, 8)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            hidden = self.inside(x)
        return hidden.float().softmax(-1)


class Mapped(nn.Module):
    """torch.vmap over samples."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        return torch.vmap(lambda row: F.softplus(row @ self.weight).sum(0))(x)


class Positive(nn.Module):
    """What a weight is made of before it is used."""

    def forward(self, weight):
        return F.softplus(weight)


def _parametrised():
    layer = nn.Linear(16, 8)
    parametrize.register_parametrization(layer, "weight", Positive())
    return layer


def _orthogonal():
    return parametrizations.orthogonal(nn.Linear(8, 8), orthogonal_map="cayley")


def _hooked():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    return model


def _channels_last():
    return UNet().eval().to(memory_format=torch.channels_last)


def _half():
    return RotarySwiGlu().to(torch.bfloat16)


CACHE = (torch.rand(2, 3, 16), torch.rand(2, 3, 16))
EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])

MODULES = {
    "RMS norm, rotary embedding, SwiGLU": lambda: (RotarySwiGlu(), (ROWS,), {}),
    "the same in bfloat16": lambda: (_half(), (ROWS.to(torch.bfloat16),), {}),
    "ALiBi attention": lambda: (AlibiAttention(), (ROWS,), {}),
    "decoder with a cache": lambda: (CachedDecoder(), (ROWS[:, :1], CACHE), {}),
    "mixture of experts": lambda: (Experts(), (ROWS,), {}),
    "tied language model": lambda: (TiedLanguageModel(), (TOKENS,), {}),
    "linear attention": lambda: (LinearAttention(), (ROWS,), {}),
    "Perceiver": lambda: (Perceiver().eval(), (ROWS,), {}),
    "UNet": lambda: (UNet().eval(), (IMAGE,), {}),
    "UNet, channels-last": lambda: (_channels_last(), (IMAGE,), {}),
    "UNet, training": lambda: (UNet(), (IMAGE,), {}),
    "diffusion block": lambda: (
        *(DiffusionBlock(), (torch.rand(2, 16, 8, 8), torch.tensor([1, 5])), {}),
    ),
    "GAN generator": lambda: (Generator().eval(), (VECTORS,), {}),
    "GAN discriminator, spectral norm": lambda: (Discriminator().eval(), (IMAGE,), {}),
    "super-resolution": lambda: (SuperResolution(), (IMAGE,), {}),
    "spatial transformer": lambda: (SpatialTransformer(), (IMAGE,), {}),
    "ConvMixer": lambda: (ConvMixer().eval(), (IMAGE,), {}),
    "shifted windows": lambda: (Windows().eval(), (torch.rand(2, 8, 8, 16),), {}),
    "overlapping patches": lambda: (Patches(), (IMAGE,), {}),
    "modulated convolution": lambda: (StyleConv(), (torch.rand(4, 8, 8, 8), VECTORS), {}),
    "LSTM tagger": lambda: (Tagger(), (TOKENS,), {}),
    "GRU cell in a loop": lambda: (CellLoop(), (ROWS,), {}),
    "moving average in a loop": lambda: (Smoothing(), (ROWS,), {}),
    "WaveNet block": lambda: (WaveBlock(), (SERIES,), {}),
    "PointNet": lambda: (PointNet().eval(), (POINTS,), {}),
    "nearest neighbours": lambda: (Neighbours(), (POINTS,), {}),
    "graph layer": lambda: (GraphLayer(), (VECTORS, EDGES), {}),
    "KAN": lambda: (Kan(), (ROWS,), {}),
    "NeRF": lambda: (Radiance(), (POINTS,), {}),
    "DLRM": lambda: (Clicks(), (VECTORS, torch.arange(12).reshape(4, 3)), {}),
    "coupling of a flow": lambda: (Coupling(), (VECTORS,), {}),
    "variational autoencoder": lambda: (Autoencoder().eval(), (VECTORS,), {}),
    "contrastive loss": lambda: (Contrast(), (VECTORS, VECTORS + 0.1), {}),
    "autograd function": lambda: (Quantised(), (ROWS,), {}),
    "checkpoint": lambda: (Checkpointed(), (ROWS,), {}),
    "autocast": lambda: (Mixed(), (ROWS,), {}),
    "vmap": lambda: (Mapped(), (ROWS,), {}),
    "parametrised weight": lambda: (_parametrised(), (ROWS,), {}),
    "orthogonal weight": lambda: (_orthogonal(), (torch.rand(4, 8),), {}),
    "hook of a child": lambda: (_hooked(), (ROWS,), {}),
}
