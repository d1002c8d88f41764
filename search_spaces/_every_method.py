"""Fields that are the same for every method, and the settings behind `--attention` of a launch.

Nystrom's kernel is that of vvvm23/albert. Its 256 landmarks would be more than GLUE's texts have tokens: 32 are one for
four of 128 tokens, a length at which it costs as much as softmax (python -m benchmarks.attention).
"""

from trainables.schema import Configuration

ATTENTION: dict[str, Configuration] = {
    "softmax": {"attention": "softmax", "num_landmarks": None, "conv_kernel_size": None},
    "nystrom": {"attention": "nystrom", "num_landmarks": 32, "conv_kernel_size": 33},
}

# The values with which a field changes nothing. They hold if a method's file neither fixes nor tunes the field.
NEUTRAL: Configuration = {**ATTENTION["softmax"], "num_hidden_layers": 0, "precision": "float32"}
