"""Makes the processes that tests start ready in less time: a quarter to a third of their processor time.

What modules make as they are loaded stays until the end: the garbage collector need not look at it again and
again, which took a second of each process that trains with torch. All else is collected as everywhere, also
when the process ends.

The methods that `dataclasses` writes as text are compiled once, not in each process: four fifths of what a
data class costs, and there are a hundred of ours in each command and two hundred in torch.

NumPy's functions get no texts of help, which nobody reads there: a twentieth of its import.

torch's compiler is loaded when something of it is asked for that training without it does not ask for: that
takes as long as all else of torch.
"""

import _frozen_importlib_external as importing
import atexit
import gc
import importlib
import marshal
import os
import sys
from contextlib import suppress
from types import CodeType, ModuleType, SimpleNamespace

NEW = 20
"""Modules loaded since things were kept last, from which on a full collection keeps what there is instead."""
METHODS = f"{os.path.dirname(__file__)}/__pycache__/methods.{importing.MAGIC_NUMBER.hex()}"  # noqa: PTH120
"""File with the code of methods, as Python keeps that of modules: valid for the same Pythons."""

_loaded = len(sys.modules)


def _keep(phase: str, info: dict[str, int]) -> None:
    global _loaded
    if phase == "start" and info["generation"] == 2 and len(sys.modules) - _loaded > NEW:
        _loaded = len(sys.modules)
        gc.freeze()


def _end() -> None:
    """Keep no more, or garbage that is the last would not be collected; and only then write what is new."""
    if _keep in gc.callbacks:
        gc.callbacks.remove(_keep)
    for methods in _methods.values():
        methods.write()


gc.callbacks.append(_keep)
atexit.register(_end)


class Methods:
    """The code of the methods of a package's data classes, by their texts."""

    def __init__(self, package: str) -> None:
        self.file = f"{METHODS}.{package}"
        self.known = self.read()
        self.new: dict[str, CodeType] = {}

    def read(self) -> dict[str, CodeType]:
        """Return what was written before."""
        with suppress(OSError), open(self.file, "rb") as file:  # noqa: PTH123
            return marshal.loads(file.read())
        return {}

    def code(self, text: str) -> CodeType:
        code = self.known.get(text)
        if code is None:
            code = self.known[text] = self.new[text] = compile(text, "<string>", "exec")
        return code

    def write(self) -> None:
        """Add what is new to the file; what another process adds at this moment may be lost, until later."""
        by_chance = "pytest" in sys.modules  # it makes classes without end
        if not self.new or by_chance or sys.dont_write_bytecode:
            return
        beside = f"{self.file}.{os.getpid()}"
        with suppress(OSError):
            with open(beside, "wb") as file:  # noqa: PTH123
                file.write(marshal.dumps(self.read() | self.new))
            os.replace(beside, self.file)  # noqa: PTH105


def _exec(text: str, names: dict, into: dict) -> None:
    """Do what the function ``exec`` does."""
    package = names["__name__"].partition(".")[0]
    if package not in _methods:
        _methods[package] = Methods(package)
    exec(_methods[package].code(text), names, into)


_methods: dict[str, Methods] = {}


class Finder:
    """Finds `dataclasses` once, as Python would, and gives it another ``exec``."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> object:
        """Return what loads the module; None for all others."""
        if name != "dataclasses":
            return None
        sys.meta_path.remove(cls)
        spec = importing.PathFinder.find_spec(name)
        load = spec.loader.exec_module

        def loaded(module: object) -> None:
            load(module)
            module.exec = _exec

        spec.loader.exec_module = loaded
        return spec


COMPILER = "torch._dynamo"


class Compiler(ModuleType):
    """What DDP, optimizers and groups ask of torch's compiler; all else they get of the real one."""

    __path__ = ()
    disable = staticmethod(lambda function, *_, **__: function)
    graph_break = staticmethod(lambda: None)
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    def real(self) -> ModuleType:
        """Return torch's compiler itself, loaded by now."""
        if sys.modules[COMPILER] is self:
            sys.meta_path.remove(self)
            del sys.modules[COMPILER], sys.modules["torch"]._dynamo
        return importlib.import_module(COMPILER)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or COMPILER not in sys.modules:  # asked of any module, of any finder
            raise AttributeError(name)
        return getattr(self.real(), name)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return what loads the compiler, for now this one, or a part of it; None for all others."""
        if not f"{name}.".startswith(f"{COMPILER}."):
            return None
        spec = importing.PathFinder.find_spec(name, path or self.real().__path__)
        if known := self if path else sys.modules.get(name):  # loaded with the real one
            spec.loader = SimpleNamespace(create_module=lambda _: known, exec_module=lambda _: None)
        return spec


sys.meta_path[:0] = Finder, Compiler(COMPILER)
for _name in ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars"):
    sys.modules[_name] = ModuleType(_name)
