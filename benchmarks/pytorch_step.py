"""The training step of `lottery bench step` in PyTorch, for comparison on the same GPU. Needs torch alone.

    python benchmarks/pytorch_step.py --size 32 --batch 128 --setting eager-float32 eager-bfloat16 compile-bfloat16
    python benchmarks/pytorch_step.py --network resnet50 --size 224 --batch 256 --setting compile-graphs-bfloat16

MobileNetV2, ResNet-18 or ResNet-50 with the same layers, SGD with Nesterov momentum and weight decay, a mask on all
kernels, images already on the device. Augmentation is left out, which favours PyTorch. Prints one JSON line per
setting.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import nn

STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def unit(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1,
    active: type[nn.ReLU | nn.ReLU6] | None = nn.ReLU6,
) -> list[nn.Module]:  # fmt: skip
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]
    return [*layers, active(inplace=True)] if active else layers


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        expand = unit(inputs, wide, 1) if expansion > 1 else []
        self.layers = nn.Sequential(*expand, *unit(wide, wide, 3, stride, wide), *unit(wide, outputs, 1, active=None))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def mobilenet_v2(small: bool, classes: int) -> nn.Module:
    layers, channels = unit(3, 32, 3, 1 if small else 2), 32
    for expansion, outputs, repeats, usual in STAGES:
        stride = 1 if small and outputs == 24 else usual
        for repeat in range(repeats):
            layers.append(Block(channels, outputs, expansion, stride if repeat == 0 else 1))
            channels = outputs
    layers += [*unit(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes)]
    return nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, inputs: int, filters: int, stride: int, deep: bool) -> None:
        super().__init__()
        outputs = 4 * filters if deep else filters
        plain, active = partial(unit, active=None), partial(unit, active=nn.ReLU)
        if deep:  # the stride in the 3 × 3 convolution
            layers = [*active(inputs, filters, 1), *active(filters, filters, 3, stride), *plain(filters, outputs, 1)]
        else:
            layers = [*active(inputs, filters, 3, stride), *plain(filters, filters, 3)]
        project = stride > 1 or inputs != outputs
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(*plain(inputs, outputs, 1, stride)) if project else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.shortcut(x) + self.layers(x))


def resnet(deep: bool, blocks: tuple[int, ...], classes: int) -> nn.Module:
    layers: list[nn.Module] = [*unit(3, 64, 7, 2, active=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(blocks):
        filters = 64 * 2**stage
        for block in range(count):
            layers.append(Residual(channels, filters, 2 if stage and not block else 1, deep))
            channels = 4 * filters if deep else filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


NETWORKS = {
    "mobilenet_v2": lambda size, classes: mobilenet_v2(size <= 64, classes),
    "resnet18": lambda size, classes: resnet(False, (2, 2, 2, 2), classes),
    "resnet50": lambda size, classes: resnet(True, (3, 4, 6, 3), classes),
}


def prepared(name: str, setting: str, size: int, batch: int) -> tuple[Callable[[int], float], float]:
    """Return what takes so many steps and returns their seconds, and the seconds until the first step was done."""
    how, precision = setting.rsplit("-", 1)
    half = precision == "bfloat16"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    classes = 10 if size <= 64 else 1000
    # channels last pays with half precision; in float32 the usual order is the faster one
    order = torch.channels_last if half else torch.contiguous_format
    network = NETWORKS[name](size, classes).cuda().to(memory_format=order)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=1e-4, nesterov=True)
    kernels = [p for p in network.parameters() if p.ndim > 1]
    masks = [(torch.rand_like(p) > 0.5).float() for p in kernels]
    images = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=order)
    labels = torch.randint(0, classes, (batch,), device="cuda")

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            return nn.functional.cross_entropy(network(images), labels)

    modes = {"eager": None, "compile": "default", "compile-graphs": "reduce-overhead"}
    work = torch.compile(loss_of, mode=modes[how]) if modes[how] else loss_of

    def train(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            work(images, labels).backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_mul_(kernels, masks)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    return train, train(1)


def measure(name: str, setting: str, size: int, batch: int, rounds: int, steps: int) -> dict[str, object]:
    train, first = prepared(name, setting, size, batch)
    _, _, *each = (train(steps) / steps for _ in range(rounds + 2))
    how, precision = setting.rsplit("-", 1)
    return {
        "hardware": torch.cuda.get_device_name(), "what": f"PyTorch {torch.__version__} {how}", "size": size,
        "batch": batch, "precision": precision, "first_seconds": first, "step_ms": 1e3 * median(each),
        "images_per_second": batch / median(each), "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", choices=NETWORKS, default="mobilenet_v2")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--setting", nargs="+", default=["eager-float32", "eager-bfloat16", "compile-bfloat16"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    for setting in arguments.setting:
        row = measure(arguments.network, setting, arguments.size, arguments.batch, arguments.rounds, arguments.steps)
        print(json.dumps(row), flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
