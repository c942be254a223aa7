"""Sum a device's tensors on the host: chunks are copied down, summed and copied up at the same time.

A chunk is a collective of its own in host memory. All chunks are submitted at once, so that the order of
calls is the caller's. Before the library's thread reads a chunk, it waits until the chunk is copied.
Meanwhile later chunks are copied down, and earlier chunks up. `Copies` is the interface to a device; `COPIES`
lists the devices.

The device converts floats to float32 before the copy down, and back after the copy up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from hostlib.collectives.arrays import warn_of_float64

CHUNK_BYTES: Final = 4 << 20


class Copies(Protocol):
    """Copies of one device, in two streams beside the caller's work: down (to the host), and up."""

    def follow(self, tensor: torch.Tensor) -> None:
        """Make later copies wait for the work that the caller has submitted to the device.

        `tensor` depends on that work.
        """

    def going_down(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which torch's work on the device is added to the stream down."""

    def going_up(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which torch's work on the device is added to the stream up."""

    def host(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return host memory that the device can copy asynchronously."""

    def down(self, source: torch.Tensor, target: torch.Tensor) -> Callable[[], None]:
        """Start to copy to the host; return a function that waits for the end, callable in any thread."""

    def up(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Start to copy to the device."""

    def join(self) -> Callable[[], None]:
        """Return a function that makes the caller's later work on the device wait for all copies to it."""


class CudaCopies:
    """`Copies` of a CUDA device, on two CUDA streams."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._down = torch.cuda.Stream(device)
        self._up = torch.cuda.Stream(device)

    def follow(self, tensor: torch.Tensor) -> None:
        """Wait for the caller's stream, and keep the tensor's memory until the copies are done."""
        for stream in (self._down, self._up):
            stream.wait_stream(torch.cuda.current_stream(self._device))
            tensor.record_stream(stream)

    def going_down(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the stream down is the current one."""
        context: contextlib.AbstractContextManager[Any] = torch.cuda.stream(self._down)
        return context

    def going_up(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the stream up is the current one."""
        context: contextlib.AbstractContextManager[Any] = torch.cuda.stream(self._up)
        return context

    def host(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return pinned host memory for a flat tensor of this type."""
        return torch.empty(elements, dtype=dtype, pin_memory=True)

    def down(self, source: torch.Tensor, target: torch.Tensor) -> Callable[[], None]:
        """Start to copy to pinned memory; return a function that waits for the end of the copy."""
        source.record_stream(self._up)  # allocated on the stream down, written on the stream up
        with self.going_down():
            target.copy_(source, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._down)
        wait: Callable[[], None] = event.synchronize
        return wait

    def up(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Start to copy from pinned memory to the device."""
        with self.going_up():
            target.copy_(source, non_blocking=True)

    def join(self) -> Callable[[], None]:
        """Record an event; return a function that makes the current stream wait for the event."""
        event = torch.cuda.Event()
        event.record(self._up)
        return lambda: torch.cuda.current_stream(self._device).wait_event(event)


COPIES: dict[str, Callable[[torch.device], Copies]] = {"cuda": CudaCopies}
"""Constructors of `Copies` by the type of device."""

_made: dict[torch.device, Copies] = {}


def copies_of(tensor: torch.Tensor) -> Copies | None:
    """Return the `Copies` of a tensor's device; None for a device without `Copies`, such as the CPU."""
    device = tensor.device
    if device not in _made and (make := COPIES.get(device.type)):
        _made[device] = make(device)
    return _made.get(device)


def devices() -> list[str]:
    """Return the supported types of devices: the CPU, and devices of `COPIES` that this torch can reach."""
    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def can_stage(device: torch.device) -> bool:
    """Return whether tensors of a device can be summed on the host."""
    return device.type in COPIES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a tensor in the memory of the host."""

    array: torch.Tensor
    """Flat tensor; holds the part of the tensor once `arrived` returns, and the part's sum at the end."""
    arrived: Callable[[], None]
    place: torch.Tensor
    """Tensor on the device that receives the sum of the chunk."""


class StagedTensor:
    """A device's tensor, copied to the host in `chunks`. The caller passes each summed chunk to `back`."""

    def __init__(self, tensor: torch.Tensor, copies: Copies) -> None:
        """Start to copy the tensor down to the host."""
        self._tensor = tensor.detach()
        self._copies = copies
        copies.follow(self._tensor)
        if tensor.dtype is torch.float64:
            warn_of_float64()
        with copies.going_down(), torch.no_grad():
            dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
            self._flat = self._tensor.to(dtype).contiguous().view(-1)
        most = CHUNK_BYTES // self._flat.element_size()
        self.chunks: Sequence[Chunk] = [self._down(part) for part in self._flat.split(most)]

    def back(self, chunk: Chunk) -> None:
        """Start to copy the sum of a chunk up to the device."""
        self._copies.up(chunk.array, chunk.place)

    def end(self) -> Callable[[], None]:
        """Assemble the tensor after all copies up are submitted; return the function from `Copies.join`."""
        if self._flat.data_ptr() != self._tensor.data_ptr():
            with self._copies.going_up(), torch.no_grad():
                self._tensor.copy_(self._flat.view(self._tensor.shape))
        return self._copies.join()

    def _down(self, part: torch.Tensor) -> Chunk:
        array = self._copies.host(part.numel(), part.dtype)
        return Chunk(array, self._copies.down(part, array), part)
