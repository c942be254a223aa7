"""Methods that ``torch.compile`` does not look into.

Its frame evaluation also sees what C++ calls while compiled code runs, such as DDP's broadcasts, and cannot
compile methods of process groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

Method = TypeVar("Method", bound=Callable[..., Any])


def untraced(method: Method) -> Method:
    """Have a method, and all that it calls, run as they are.

    `torch.compiler.disable` would import the compiler, which takes seconds, in programs that do not compile.
    """
    skip = eval_frame._FrameAction.SKIP
    code = method.__code__
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    return method
