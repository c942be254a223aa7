"""An optimizer whose gradients are averaged over all ranks, while the backward pass still runs."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Parameter

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.errors import NotSupported
from hostlib.horovod.handles import synchronize
from hostlib.horovod.reductions import Average, ReduceOp, grouped, way
from hostlib.horovod.world import ProcessSet, current, global_process_set


class Gradients:
    """The gradients of an optimizer's parameters, on their way through the ranks."""

    def __init__(
        self,
        names: dict[Parameter, str],
        *,
        compression: type[Compressor],
        passes: int,
        op: ReduceOp,
        predivide: float,
        groups: Sequence[Sequence[Parameter]],
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.names = names
        self._compression, self._numbers = way(compression, process_set, op)
        self._feedback = compression.feedback and self._numbers is not None
        self._residuals: dict[int, NDArray[np.float32]] = {}
        """What was rounded off the gradient of each parameter, by its identity."""
        self.passes = passes
        self._op = op
        self._scales = (1 / predivide, predivide) if op is Average else (1.0, 1.0)
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        grouped = {id(parameter) for group in groups for parameter in group}
        alone = [(parameter,) for parameter in names if id(parameter) not in grouped]
        self._groups: list[tuple[Parameter, ...]] = [*map(tuple, groups), *alone]
        self._group_of = {id(parameter): group for group in self._groups for parameter in group}
        self._left: dict[int, int] = {}
        self._handles: dict[tuple[Parameter, ...], tuple[int, list[Any]]] = {}
        self.is_synchronized = False
        if process_set.included() and current().size > 1:
            for parameter in names:
                parameter.register_post_accumulate_grad_hook(self._note)

    def reset(self) -> None:
        """Begin to count passes again."""
        self._left.clear()

    def synchronize(self) -> None:
        """Wait until all gradients are averaged; those that were not computed count as zeros."""
        if not self._process_set.included() or current().size == 1:
            self.is_synchronized = True
            return
        for group in self._groups:
            if group not in self._handles:
                self._submit(group)
        for group, (handle, contexts) in self._handles.items():
            sums = synchronize(handle)
            for parameter, total, context in zip(group, sums, contexts, strict=True):
                parameter.grad = self._compression.decompress(total, context).reshape(parameter.shape)
        self._handles.clear()
        self.reset()
        self.is_synchronized = True

    def _note(self, parameter: torch.Tensor) -> None:
        """Count a pass; submit once a whole group is through all of them."""
        left = self._left.get(id(parameter), self.passes) - 1
        if left < 0:
            raise AssertionError(
                f"the gradient of {self.names[parameter]} was computed more than {self.passes} times before "
                "step(): a larger backward_passes_per_step adds them up first"
            )
        self._left[id(parameter)] = left
        self.is_synchronized = False
        group = self._group_of[id(parameter)]
        if all(self._left.get(id(each), self.passes) == 0 for each in group):
            self._submit(group)

    def _submit(self, group: tuple[Parameter, ...]) -> None:
        compressed = [self._compression.compress(self._gradient(parameter)) for parameter in group]
        tensors = [tensor for tensor, _ in compressed]
        handle = grouped(
            "grouped_allreduce",
            tensors,
            f"gradient.{self.names[group[0]]}",
            self._op,
            *self._scales,
            self._process_set,
            finish=lambda _: tensors,
            in_place=True,
            numbers=self._numbers,
            residuals=[*map(self._residual, group)] if self._feedback else None,
        )
        self._handles[group] = handle, [context for _, context in compressed]

    def _residual(self, parameter: Parameter) -> NDArray[np.float32]:
        if id(parameter) not in self._residuals:
            self._residuals[id(parameter)] = np.zeros(tuple(parameter.shape), np.float32)
        return self._residuals[id(parameter)]

    def _gradient(self, parameter: Parameter) -> torch.Tensor:
        if parameter.grad is None:
            return torch.zeros_like(parameter, requires_grad=False)
        if parameter.grad.layout is torch.strided:
            return parameter.grad
        if not self._sparse_as_dense:
            raise NotSupported(
                f"the gradient of {self.names[parameter]} is sparse: pass sparse_as_dense=True, or make the "
                "embedding dense (sparse=False)"
            )
        return parameter.grad.to_dense()


class _Distributed:
    """The class that `DistributedOptimizer` puts before an optimizer's own class."""

    _ina_gradients: Gradients

    @property
    def _parameter_names(self) -> dict[Parameter, str]:
        """The names of the parameters, under Horovod's name: programs read it."""
        return self._ina_gradients.names

    def synchronize(self) -> None:
        """Wait until all gradients are averaged; for what is done with them before `step`."""
        self._ina_gradients.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Have `step` not average: `synchronize` has been called."""
        self._ina_skips = True
        try:
            yield
        finally:
            self._ina_skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes add up before gradients are averaged."""
        self._ina_gradients.passes = passes
        self._ina_gradients.reset()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Average the gradients, then do as the optimizer itself."""
        gradients = self._ina_gradients
        if not getattr(self, "_ina_skips", False):
            if gradients.is_synchronized and current().size > 1:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after synchronize(): it "
                    "averages the gradients again",
                    stacklevel=2,
                )
            gradients.synchronize()
        gradients.is_synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """Do as the optimizer itself. Raises AssertionError while gradients are on their way."""
        if self._ina_gradients._handles:
            raise AssertionError("zero_grad() between backward() and step() or synchronize() is an error")
        super().zero_grad(*arguments, **named)  # type: ignore[misc]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: type[Compressor] = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the optimizer, with gradients averaged over all ranks before each step.

    Args:
        optimizer: any of torch's; it is changed, and its state stays.
        named_parameters: ``model.named_parameters()``; None: parameters are known by their place.
        compression: how gradients travel, one of `Compression`; in 8 and 4 bits with error feedback, for
            which they have to be on the CPU.
        backward_passes_per_step: how many backward passes add up before gradients are averaged.
        op: Average or Sum.
        gradient_predivide_factor: splits the division for the average: so much of it comes before the sum.
        num_groups: of old: as `groups`.
        groups: how many groups of gradients are averaged as one collective each, or which; None: each alone.
        sparse_as_dense: whether sparse gradients are made dense, or refused.
        process_set: the ranks that take part.

    Raises:
        ValueError: names are missing, or there twice; or an argument is out of its range.
        NotSupported: Adasum.
    """
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
    if op not in (Average, ReduceOp.Sum):
        raise NotSupported(f"op is {op}: gradients are averaged or summed, hvd.Average or hvd.Sum")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}, must be 1 or more")
    names = _names(optimizer, named_parameters)
    cls = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    optimizer.__class__ = cls
    optimizer._ina_gradients = Gradients(
        names,
        compression=compression,
        passes=backward_passes_per_step,
        op=op,
        predivide=gradient_predivide_factor,
        groups=_groups(list(names), groups or num_groups or ()),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    return optimizer


def _names(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, Parameter]] | None
) -> dict[Parameter, str]:
    """Return the names of the parameters that want a gradient."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named is None:
        found = {parameter: f"noname.{place}" for place, parameter in enumerate(parameters)}
    else:
        pairs = list(named)
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise ValueError("named_parameters must be pairs (name, parameter): model.named_parameters()")
        every = [name for name, _ in pairs]
        if twice := sorted({name for name in every if every.count(name) > 1}):
            raise ValueError(f"names of parameters must differ; there twice: {', '.join(twice)}")
        found = {parameter: name for name, parameter in pairs}
        if unnamed := [parameter for parameter in parameters if parameter not in found]:
            shapes = ", ".join(str(tuple(parameter.shape)) for parameter in unnamed)
            raise ValueError(f"named_parameters leave out {len(unnamed)} of the optimizer's: {shapes}")
    return {parameter: found[parameter] for parameter in parameters if parameter.requires_grad}


def _groups(
    parameters: Sequence[Parameter], groups: int | Sequence[Sequence[Parameter]]
) -> Sequence[Sequence[Parameter]]:
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups is {groups}, must be a number of groups, or lists of parameters")
        count = min(groups, len(parameters)) or 1
        ends = [len(parameters) * place // count for place in range(count + 1)]
        return [parameters[first:end] for first, end in itertools.pairwise(ends)]
    known = set(map(id, parameters))
    kept = [[parameter for parameter in group if id(parameter) in known] for group in groups]
    every = [id(parameter) for group in kept for parameter in group]
    if len(every) != len(set(every)):
        raise ValueError("a parameter is in two groups")
    return [group for group in kept if group]
