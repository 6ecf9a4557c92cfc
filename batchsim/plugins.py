"""Finding a plug-in by the name that a scenario gives it.

The kinds of a sub-package are its modules; each holds one public class with that name in CamelCase.
A name with a colon, `mypkg.mine:Mine`, is a class outside batchsim.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from typing import Any

from batchsim.errors import InvalidInput, problem


def kinds(package: str) -> list[str]:
    """The kinds that `package` (a dotted name) offers, in alphabetical order."""
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec is not None else None
    return sorted(module.name for module in pkgutil.iter_modules(locations) if not module.name.startswith("_"))


def find(package: str, kind: str, path: str = "kind") -> type[Any]:
    """The class of `kind`; raises InvalidInput that names the nearest kind, or what is wrong with an outside name."""
    if ":" in kind:
        return _outside(kind, path)
    known = kinds(package)
    if kind not in known:
        near = difflib.get_close_matches(kind, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; one of {', '.join(known)}, or module:Class"
        raise InvalidInput([problem(path, kind, f"unknown kind{hint}")])
    module = importlib.import_module(f"{package}.{kind}")
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__ and name.lower() == kind.replace("_", ""):
            return value
    raise InvalidInput([problem(path, kind, f"module {module.__name__} has no class named after it")])


def _outside(kind: str, path: str) -> type[Any]:
    module_name, _, class_name = kind.partition(":")
    try:
        value = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, ValueError) as error:
        raise InvalidInput([problem(path, kind, f"cannot import {module_name!r}: {error}")]) from error
    except AttributeError as error:
        raise InvalidInput([problem(path, kind, f"{module_name!r} has no {class_name!r}")]) from error
    if not isinstance(value, type):
        raise InvalidInput([problem(path, kind, "is not a class")])
    return value
