"""Defaults for fields that a method's file does not mention, and the fields that `--attention` sets.

Nystrom attention has the kernel size of vvvm23/albert. It has 32 landmarks instead of 256, because GLUE's texts are cut
to 128 tokens. At this length, Nystrom attention costs as much as softmax attention (python -m benchmarks.attention).
"""

from trainables.schema import Configuration

ATTENTION: dict[str, Configuration] = {
    "softmax": {"attention": "softmax", "num_landmarks": None, "conv_kernel_size": None},
    "nystrom": {"attention": "nystrom", "num_landmarks": 32, "conv_kernel_size": 33},
}

# Values that have no effect. They apply if a method's file neither fixes nor tunes the field.
NEUTRAL: Configuration = {**ATTENTION["softmax"], "num_hidden_layers": 0, "precision": "float32"}
