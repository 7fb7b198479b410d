"""Signatures for Equinox modules in the reference: fields are the arguments of a constructor that nobody wrote."""

import ast

import griffe


class Modules(griffe.Extension):
    """Gives every module without an `__init__` the one that its fields, and those of its bases, make."""

    def on_package(self, *, pkg, **_):
        lacking = [cls for cls in _classes(pkg) if _is_module(cls) and "__init__" not in cls.all_members]
        for cls in lacking:  # found first: what one is given, those that inherit from it would have
            cls.set_member("__init__", _constructor(cls))


def _classes(thing):
    for member in thing.members.values():
        if not member.is_alias and (member.is_class or member.is_module):
            yield from [member] if member.is_class else []
            yield from _classes(member)


def _lineage(cls):
    """The class and what it inherits from inside this package, the most abstract first."""
    return [*reversed([ancestor for ancestor in cls.mro() if not ancestor.is_alias]), cls]


def _is_module(cls):
    return any(str(base).split(".")[-1] == "Module" for ancestor in _lineage(cls) for base in ancestor.bases)


def _is_field(member):
    # (Griffe takes `ClassVar` out of an annotation, and leaves this label out instead.)
    annotated = member.is_attribute and member.annotation is not None
    return annotated and "instance-attribute" in member.labels


def _constructor(cls):
    fields = {}
    for ancestor in _lineage(cls):
        for name, member in ancestor.members.items():
            if member.is_alias:
                continue
            if _is_field(member):
                fields[name] = member
            else:
                fields.pop(name, None)  # a property in the place of a field
    kinds, parameters = griffe.ParameterKind, [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
    for name, field in fields.items():
        words = (
            _keywords(str(field.value)) if "field(" in str(field.value) else {"default": field.value and str(field.value)}
        )
        kind = kinds.keyword_only if words.get("kw_only") == "True" else kinds.positional_or_keyword
        parameters.append(griffe.Parameter(name, annotation=field.annotation, kind=kind, default=words.get("default")))
    parameters.sort(key=lambda parameter: parameter.kind is kinds.keyword_only)
    return griffe.Function("__init__", parameters=griffe.Parameters(*parameters), lineno=cls.lineno, endlineno=cls.lineno)


def _keywords(call: str) -> dict[str, str]:
    """The keywords of a call, as they are written."""
    return {word.arg: ast.unparse(word.value) for word in ast.parse(call, mode="eval").body.keywords if word.arg}
