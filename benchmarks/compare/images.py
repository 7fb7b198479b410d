"""The paper's image models in training, against torchdiffeq with direct backpropagation."""

import time
from collections.abc import Callable, Iterator

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import lagrax as lx
from lagrax.nn import IMAGE_SHAPES, PAPER_FILTERS, Form, ImageClassifier, ImageField

from ..row import Faster, Row, Side
from ..timing import interleave

BATCH, SHAPE, FILTERS, TOLERANCE, RATE = 64, IMAGE_SHAPES["CIFAR10"], PAPER_FILTERS["NODE", 0]["CIFAR10"], 1e-3, 1e-3
# One call takes seconds, which makes few repetitions enough.
FEWER = 4


def images(repetitions: int) -> Iterator[Row]:
    """The gradient of one block over two steps, then iterations of training at the tolerance of the paper's code."""
    yield _block(max(2, repetitions // FEWER))
    yield from _training(max(2, repetitions // FEWER))


def _draw() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(BATCH, *SHAPE)).astype(np.float32), generator.integers(0, 10, BATCH).astype(np.int32)


def _block(repetitions: int) -> Row:
    from ..with_torchdiffeq import TwoSteps

    batch, _ = _draw()
    field = ImageField(SHAPE[0], FILTERS, form=Form.CURRENT, key=jax.random.key(0))
    fixed = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": 4, "adjoint": lx.DiscreteAdjoint(keep_stages=True)}

    def loss(field, batch):
        solution = lx.ddesolve(lx.DelayTerm(field, 1.0), dfx.Tsit5(), 0.0, 1.0, 0.5, batch, **fixed)
        return jnp.sum(solution.ys**2), solution.stats["num_evaluations"]

    arrays, static = eqx.partition(field, eqx.is_array)
    gradient = jax.jit(jax.grad(lambda arrays, batch: loss(eqx.combine(arrays, static), batch), has_aux=True))
    start = time.perf_counter()
    compiled = gradient.lower(arrays, batch).compile()
    compiling = time.perf_counter() - start
    peer = TwoSteps(field, batch)
    times = interleave({"lagrax": lambda: compiled(arrays, batch), "peer": peer}, repetitions)
    evaluations = int(compiled(arrays, batch)[1])
    memory = compiled.memory_analysis().temp_size_in_bytes / 1e6
    return Row(
        name="images",
        what="image block, 2 steps, gradient",
        peer="torchdiffeq",
        target=Faster(1.0),
        lagrax=Side(times["lagrax"]),
        other=Side(times["peer"]),
        note=f"Batch {BATCH}, {'×'.join(map(str, SHAPE))}, {FILTERS} filters; Tsit5 and dopri5, {evaluations} and "
        f"{peer.field.evaluations} evaluations, the gradient by direct backpropagation in torchdiffeq. lagrax's takes "
        f"{memory:.0f} MB of memory and {compiling:.0f} s to compile.",
        extra={
            "evaluations": {"lagrax": evaluations, "peer": peer.field.evaluations},
            "megabytes": memory,
            "compile": compiling,
        },
    )


def _training(repetitions: int) -> Iterator[Row]:
    from ..with_torchdiffeq import Training

    batch, labels = _draw()
    node = _model("NODE")
    weight, bias = np.array(node.head.weight), np.array(node.head.bias)
    peer = Training(node.flow.field, weight, bias, batch, labels, TOLERANCE, RATE)
    # Of a NODE both; torchdiffeq has no delays.
    iterations = {kind: _iteration(_model(kind), batch, labels) for kind in ("NODE", "NDDE")}
    times = interleave({kind: run for kind, (run, _) in iterations.items()} | {"peer": peer}, repetitions)
    for kind, (run, memory) in iterations.items():
        evaluations = int(run()[1])
        speed = [BATCH / float(np.median(times[name])) for name in (kind, "peer")]
        yield Row(
            name="images",
            what=f"training, {kind} of images",
            peer="torchdiffeq (NODE)",
            target=Faster(1.0),
            lagrax=Side(times[kind]),
            other=Side(times["peer"]),
            note=f"An iteration of Adam, batch {BATCH}, CIFAR10's shape, {FILTERS} filters, dopri5 with rtol = atol = "
            f"{TOLERANCE:g}: {speed[0]:.1f} and {speed[1]:.1f} images per second, {evaluations} and "
            f"{peer.field.evaluations} evaluations in the last one; lagrax's takes {memory:.0f} MB of memory.",
            extra={"images per second": dict(zip(("lagrax", "peer"), speed, strict=True)), "megabytes": memory},
        )


def _model(kind: str) -> ImageClassifier:
    controller = dfx.PIDController(rtol=TOLERANCE, atol=TOLERANCE)
    settings = {"solver": dfx.Dopri5(), "stepsize_controller": controller, "max_steps": 32}
    return ImageClassifier(kind, SHAPE, FILTERS, key=jax.random.key(0), **settings)


def _iteration(model: ImageClassifier, batch: np.ndarray, labels: np.ndarray) -> tuple[Callable, float]:
    """A function that makes one update after another, and the megabytes that one takes."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.adam(RATE)

    def loss(parameters):
        logits, stats = eqx.combine(parameters, static).classify(batch)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels)), stats["num_evaluations"]

    def update(parameters, state):
        (_, evaluations), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, evaluations

    state = optimizer.init(parameters)
    compiled = jax.jit(update).lower(parameters, state).compile()
    place = [parameters, state]

    def run():
        *place[:], evaluations = compiled(*place)
        return place, evaluations

    return run, compiled.memory_analysis().temp_size_in_bytes / 1e6
