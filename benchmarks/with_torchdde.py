"""The gradient of the spiral fit by torchdde."""

import warnings

import numpy as np
import torch
import torchdde

from . import neural


class Field(torch.nn.Module):
    """y' = W₂ tanh(W₁ (y + y(t − τ))), one trajectory as a batch of one."""

    def __init__(self, weights: list[np.ndarray]):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.tensor(matrix)) for matrix in weights)
        self.delays = torch.nn.Parameter(torch.tensor([neural.DELAY]), requires_grad=False)

    def forward(self, t, y, args, *, history):
        return torch.tanh((y + history[0]) @ self.first.T) @ self.second.T


class SpiralFit:
    """Call it for the gradient with respect to (W₁, W₂). `longest_step` None leaves the step to torchdde."""

    def __init__(self, weights: list[np.ndarray], data: neural.Data, longest_step: float | None, adjoint: bool = False):
        self.field = Field(weights)
        self.times = torch.tensor(data.times)
        self.start = torch.tensor(neural.START)[None]
        self.data = torch.tensor(data.values)[None]
        self.longest_step, self.adjoint = longest_step, adjoint

    def __call__(self) -> list[np.ndarray]:
        self.field.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ys = torchdde.integrate(
                self.field, torchdde.Dopri5(), self.times[0], self.times[-1], self.times, lambda t: self.start, None,
                # It remembers past errors, so each solve has its own.
                torchdde.AdaptiveStepSizeController(neural.ATOL, neural.RTOL, dtmax=self.longest_step),
                delays=self.field.delays, discretize_then_optimize=not self.adjoint,
            )  # fmt: skip
            torch.mean(torch.abs(ys - self.data)).backward()
        return [self.field.first.grad.numpy().copy(), self.field.second.grad.numpy().copy()]
