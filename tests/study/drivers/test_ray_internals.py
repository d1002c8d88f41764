"""What the driver keeps Ray from doing: pytest tests/study/drivers/test_ray_internals.py"""

import subprocess
import sys

import pytest
from helpers.places import ROOT

COUNTS_CALLBACKS = """
import sys
from ray import tune
from ray.tune import tune as running
from study.cluster.ray_internals import no_callback_telemetry
with no_callback_telemetry():
    running.air_usage.tag_callbacks([tune.Callback()])
print("mlflow" in sys.modules)
running.air_usage.tag_callbacks([tune.Callback()])
print("mlflow" in sys.modules)
"""


@pytest.mark.long
@pytest.mark.slow
def test_driver_imports_no_mlflow_for_rays_telemetry():
    done = subprocess.run([sys.executable, "-c", COUNTS_CALLBACKS], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
