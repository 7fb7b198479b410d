"""The paper's image block inside torchdiffeq, trained by direct backpropagation."""

import numpy as np
import torch
import torchdiffeq

from lagrax.nn import ImageField


class Field(torch.nn.Module):
    """An `ImageField` of the same weights, in PyTorch's own convolutions."""

    def __init__(self, field: ImageField):
        super().__init__()
        self.layers = torch.nn.Sequential(
            _convolution(field.expand, 1), torch.nn.ReLU(), _convolution(field.mix, 3), torch.nn.ReLU(),
            _convolution(field.reduce, 1),
        )  # fmt: skip
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        return self.layers(y)


def _convolution(layer, size: int) -> torch.nn.Conv2d:
    weight = np.asarray(layer.weight).reshape(size, size, *layer.weight.shape[-2:]).transpose(3, 2, 0, 1)
    convolution = torch.nn.Conv2d(weight.shape[1], weight.shape[0], size, padding=size // 2)
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor(weight.copy()))
        convolution.bias.copy_(torch.tensor(np.array(layer.bias)))
    return convolution


class TwoSteps:
    """Call it for the gradient of Σ h(1)² with respect to the field's parameters, after two steps of dopri5.

    Without error control: any error is accepted, and the second step, which torchdiffeq lets run past the end, is
    interpolated there.
    """

    def __init__(self, field: ImageField, images: np.ndarray):
        self.field, self.images = Field(field), torch.tensor(images)

    def __call__(self) -> list[np.ndarray]:
        self.field.zero_grad()
        self.field.evaluations = 0
        ys = torchdiffeq.odeint(
            self.field,
            self.images,
            torch.tensor([0.0, 1.0]),
            rtol=1e9,
            atol=1e9,
            method="dopri5",
            options={"first_step": 0.5},
        )
        torch.sum(ys[-1] ** 2).backward()
        return [parameter.grad.numpy().copy() for parameter in self.field.parameters()]


class Training:
    """Call it for one iteration of Adam on one batch: image features, linear layer, cross-entropy."""

    def __init__(
        self, field: ImageField, weight: np.ndarray, bias: np.ndarray, images, labels, tolerance: float, rate: float
    ):
        self.field, self.images, self.labels = Field(field), torch.tensor(images), torch.tensor(labels, dtype=torch.long)
        self.head = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor(weight))
            self.head.bias.copy_(torch.tensor(bias))
        self.optimizer = torch.optim.Adam([*self.field.parameters(), *self.head.parameters()], lr=rate)
        self.tolerance = tolerance

    def __call__(self) -> float:
        self.optimizer.zero_grad()
        self.field.evaluations = 0
        times = torch.tensor([0.0, 1.0])
        ys = torchdiffeq.odeint(self.field, self.images, times, rtol=self.tolerance, atol=self.tolerance, method="dopri5")
        loss = torch.nn.functional.cross_entropy(self.head(ys[-1].flatten(1)), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()
