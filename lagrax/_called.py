"""Functions that users give: whether their arguments fit is said in a sentence, and errors of their own stay as they are."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax

_LONGEST = 200


def check_arguments(name: str, function: Callable, expected: str) -> None:
    """`function` must take `expected`, such as `"t, y, args"`, by position; what it calls by these names, in this order.

    Names tell what nothing else does: with `(t, y, args, delayed)` the two would change places without a word.
    """
    wanted = expected.split(", ")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [parameter.name for parameter in signature.parameters.values() if parameter.kind in places]
    missing = [argument for argument in wanted if argument not in given]
    try:
        signature.bind(*wanted)
    except TypeError:
        remedy = f"add `{missing[0]}`" if missing and len(given) == len(wanted) - 1 else "give it these arguments"
        raise ValueError(f"{name} is a function of ({', '.join(given)}), expected one of ({expected}): {remedy}") from None
    if any(there in wanted and there != here for there, here in zip(given, wanted, strict=False)):
        raise ValueError(
            f"{name} is a function of ({', '.join(given)}), expected one of ({expected}): put them in this order"
        )


@contextmanager
def users_own(name: str, expected: str, *arguments: Any) -> Iterator[None]:
    """Around a call of a user's function: what it raises goes on as it is, with a note of what it was called with."""
    try:
        yield
    except Exception as error:
        given = ", ".join(f"{n} = {shown(x)}" for n, x in zip(expected.split(", "), arguments, strict=True))
        error.add_note(f"This happened inside {name}, which lagrax called with {given}.")
        if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
            error.add_note(
                "It has no values there, it is being compiled: write jax.numpy for numpy and math, and jax.numpy.where or "
                "jax.lax.cond for `if`."
            )
        raise


def shown(tree: Any) -> str:
    """Arrays by type and shape."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x, tree)
    text = " ".join(eqx.tree_pformat(shapes, struct_as_array=True).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
