"""Fields that are the same for every method, and the fields that `--attention` sets.

Nystrom's kernel size is that of vvvm23/albert. The 256 landmarks there exceed the 128 tokens of GLUE's texts; the 32
here are one for every four tokens. At this length Nystrom costs as much as softmax (python -m benchmarks.attention).
"""

from trainables.schema import Configuration

ATTENTION: dict[str, Configuration] = {
    "softmax": {"attention": "softmax", "num_landmarks": None, "conv_kernel_size": None},
    "nystrom": {"attention": "nystrom", "num_landmarks": 32, "conv_kernel_size": 33},
}

# Values that have no effect. They apply if a method's file neither fixes nor tunes the field.
NEUTRAL: Configuration = {**ATTENTION["softmax"], "num_hidden_layers": 0, "precision": "float32"}
