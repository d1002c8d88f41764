"""How much is computed: FLOPs, as PyTorch counts them."""

from __future__ import annotations

from collections.abc import Callable

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def count_flops(run: Callable[[], object]) -> int:
    """FLOPs of the products of matrices and the convolutions of a run, a multiplication and an addition being two.

    Attention runs on its plain implementation: the fused ones are not counted on every device.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
