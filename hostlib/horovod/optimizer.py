"""An optimizer that averages its gradients over all ranks while the backward pass still runs."""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.handles import synchronize
from hostlib.horovod.negotiation import NotSupported
from hostlib.horovod.reductions import Average, How, ReduceOp, allreduce, grouped
from hostlib.horovod.world import ProcessSet, current, global_process_set

_followers: Any = WeakIdKeyDictionary()
"""By parameter: a weak reference to the `AveragedGradients` of the last optimizer made for the parameter."""


class AveragedGradients:
    """Averages the gradients of an optimizer's parameters over the ranks."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        known: dict[Parameter, str],
        *,
        how: How,
        compression: type[Compressor],
        passes: int,
        sparse_as_dense: bool,
    ) -> None:
        self._optimizer = optimizer
        self._known = known
        self.names: dict[Parameter, str] = {}
        """Names of the parameters whose gradients are averaged: those that require a gradient."""
        self._compression, self.how = how.compressed(compression)
        self._feedback = compression.feedback and self.how.numbers is not None
        self._residuals: dict[int, NDArray[np.float32]] = {}
        """The rounding error of each parameter's gradient, by the parameter's `id`."""
        self.passes = passes
        self._sparse_as_dense = sparse_as_dense
        optimizers = current().optimizers
        optimizers[how.process_set.process_set_id] += 1
        number = optimizers[how.process_set.process_set_id]
        self.prefix = f"gradient{number if number > 1 else ''}"
        """Prefix of the names of this optimizer's collectives; unique among a process set's optimizers."""
        self._groups: list[tuple[Parameter, ...]] = []
        self._group_of: dict[int, tuple[Parameter, ...]] = {}
        self._left: dict[int, int] = {}
        self._handles: dict[tuple[Parameter, ...], tuple[int, list[Any]]] = {}
        self.is_synchronized = False
        self.takes_part = how.process_set.included() and current().size > 1

    def follow(self, groups: int | Sequence[Sequence[Parameter]] = ()) -> None:
        """Start to average the gradients of added or unfrozen parameters, too; for `groups` see `_groups`."""
        new = {}
        for place, parameter in enumerate(_parameters(self._optimizer)):
            if parameter.requires_grad and parameter not in self.names:
                new[parameter] = self._known.get(parameter, f"noname.{place}")
        self.names |= new
        for group in _groups(list(new), groups) if new else ():
            self._groups.append(tuple(group))
            self._group_of |= dict.fromkeys(map(id, group), self._groups[-1])
        for parameter in new if self.takes_part else ():
            _followers[parameter] = weakref.ref(self)
            parameter.register_post_accumulate_grad_hook(self._note)

    @property
    def under_way(self) -> bool:
        """True if gradients have been submitted, and `synchronize` has not yet waited for them."""
        return bool(self._handles)

    def reset(self) -> None:
        """Restart the count of each parameter's backward passes."""
        self._left.clear()

    def synchronize(self) -> None:
        """Wait until all gradients are averaged; gradients that were not computed count as zeros."""
        if not self.takes_part:
            self.is_synchronized = True
            return
        self.follow()
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

    def averaging(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure whose gradients and loss are averaged, because an optimizer may use both."""

        def averaged() -> Any:
            self.is_synchronized = False
            loss = closure()
            if not self.is_synchronized:
                self.synchronize()
            self.is_synchronized = False
            if not self.takes_part or not isinstance(loss, float | torch.Tensor):
                return loss
            own = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
            mean = allreduce(
                own, name=f"{self.prefix}.loss", op=self.how.op, process_set=self.how.process_set
            )
            return mean if isinstance(loss, torch.Tensor) else float(mean)

        return averaged

    def _note(self, parameter: torch.Tensor) -> None:
        """Count a backward pass of a parameter; submit its group after all passes of all its parameters.

        Raises AssertionError after more than `passes` passes.
        """
        if not self._follows(parameter):
            return
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

    def _follows(self, parameter: torch.Tensor) -> bool:
        """Return whether this is the last optimizer made for this parameter."""
        return _followers[parameter]() is self

    def _submit(self, group: tuple[Parameter, ...]) -> None:
        if taken := [parameter for parameter in group if not self._follows(parameter)]:
            raise ValueError(
                f"the gradient of {self.names[taken[0]]} is averaged by a DistributedOptimizer that was made "
                "later for the same parameters: call step() of the later optimizer"
            )
        compressed = [self._compression.compress(self._gradient(parameter)) for parameter in group]
        tensors = [tensor for tensor, _ in compressed]
        handle = grouped(
            "grouped_allreduce",
            tensors,
            f"{self.prefix}.{self.names[group[0]]}",
            replace(self.how, residuals=[*map(self._residual, group)] if self._feedback else None),
            lambda _: tensors,
            in_place=True,
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
    """Mixin that `DistributedOptimizer` puts before an optimizer's own class."""

    _ina_gradients: AveragedGradients

    @property
    def _parameter_names(self) -> dict[Parameter, str]:
        """Names of the parameters; programs use this attribute by its name in Horovod."""
        return self._ina_gradients.names

    def synchronize(self) -> None:
        """Wait until all gradients are averaged, for use before `step`."""
        self._ina_gradients.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Make `step` in the block skip the average, after a call of `synchronize`."""
        self._ina_skips = True
        try:
            yield
        finally:
            self._ina_skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes that add up before gradients are averaged."""
        self._ina_gradients.passes = passes
        self._ina_gradients.reset()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, and average its gradients, too."""
        super().add_param_group(param_group)  # type: ignore[misc]
        self._ina_gradients.follow()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Average the gradients, then do the optimizer's own step.

        With a closure, average the gradients and the loss of each of its calls.
        """
        gradients = self._ina_gradients
        if closure is None and not getattr(self, "_ina_skips", False):
            if gradients.is_synchronized and current().size > 1:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after synchronize(): it "
                    "averages the gradients again",
                    stacklevel=2,
                )
            gradients.synchronize()
        gradients.is_synchronized = False
        return super().step(closure and gradients.averaging(closure))  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """Reset the gradients. Raises AssertionError while they are being averaged."""
        if self._ina_gradients.under_way:
            raise AssertionError(
                "zero_grad() between backward() and step() or synchronize() is an error: to drop gradients "
                "that another model's backward() has left, call synchronize() first, or freeze the parameters"
            )
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
        optimizer: any torch optimizer; it is changed in place, and keeps its state.
        named_parameters: ``model.named_parameters()``; None: parameters are named by their position.
        compression: one of `Compression`; 8 and 4 bits use error feedback, which needs gradients on the CPU.
        backward_passes_per_step: number of backward passes that add up before gradients are averaged.
        op: Average or Sum.
        gradient_predivide_factor: part of the average's divisor that is applied before the sum.
        num_groups: old name of `groups`.
        groups: number of groups of gradients, or lists of parameters, to average as one collective each;
            None: each gradient alone.
        sparse_as_dense: convert sparse gradients to dense ones instead of refusing them.
        process_set: the ranks that take part.

    Raises:
        ValueError: names are missing or not unique, or an argument is out of its range.
        NotSupported: Adasum.
    """
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
    if op not in (Average, ReduceOp.Sum):
        raise NotSupported(f"op is {op}: gradients are averaged or summed, hvd.Average or hvd.Sum")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}, must be 1 or more")
    gradients = AveragedGradients(
        optimizer,
        _names(optimizer, named_parameters),
        how=How(op, process_set, 1 / gradient_predivide_factor, gradient_predivide_factor),
        compression=compression,
        passes=backward_passes_per_step,
        sparse_as_dense=sparse_as_dense,
    )
    gradients.follow(groups or num_groups or ())
    optimizer.__class__ = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    optimizer._ina_gradients = gradients
    return optimizer


def _parameters(optimizer: torch.optim.Optimizer) -> list[Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _names(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, Parameter]] | None
) -> dict[Parameter, str]:
    """Return the name of each parameter. Raises ValueError if a name is missing or not unique."""
    if named is None:
        return {}
    pairs = list(named)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError("named_parameters must be pairs (name, parameter): model.named_parameters()")
    every = [name for name, _ in pairs]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise ValueError(f"names of parameters must differ; given twice: {', '.join(twice)}")
    found = {parameter: name for name, parameter in pairs}
    if unnamed := [parameter for parameter in _parameters(optimizer) if parameter not in found]:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in unnamed)
        raise ValueError(
            f"named_parameters leave out {len(unnamed)} of the optimizer's parameters, of shapes {shapes}"
        )
    return found


def _groups(
    parameters: Sequence[Parameter], groups: int | Sequence[Sequence[Parameter]]
) -> Sequence[Sequence[Parameter]]:
    """Return the groups of these parameters; a parameter in no group is a group of its own."""
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups is {groups}, must be a number of groups, or lists of parameters")
        count = min(groups, len(parameters))
        ends = [len(parameters) * place // count for place in range(count + 1)]
        return [parameters[first:end] for first, end in itertools.pairwise(ends)]
    known = set(map(id, parameters))
    kept = [[parameter for parameter in group if id(parameter) in known] for group in groups]
    every = [id(parameter) for group in kept for parameter in group]
    if len(every) != len(set(every)):
        raise ValueError("a parameter is in two groups")
    alone = [[parameter] for parameter in parameters if id(parameter) not in {*every}]
    return [group for group in kept if group] + alone
