"""The costs of a trial over all of its processes: pytest tests/study/drivers/test_clock.py"""

import random

import pytest
from helpers.bit_flips import flip_bit

from study.drivers.worker import Clock


def test_a_clock_continues_from_the_times_in_its_file(tmp_path):
    path = tmp_path / "clock.json"
    Clock(path, gpus=0.5, recorded=(100.0, 50.0)).save()
    wall_seconds, gpu_seconds = Clock(path, gpus=0.5).read()
    assert 100 <= wall_seconds < 200 and 50 <= gpu_seconds < 100


def test_older_clock_file_has_no_checksum(tmp_path):
    (tmp_path / "clock.json").write_text('{\n "wall_seconds": 100.0,\n "gpu_seconds": 50.0\n}\n')
    assert Clock(tmp_path / "clock.json", gpus=0).read()[1] == 50


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_clock_continues_from_the_times_in_the_journal(tmp_path, seed):
    path = tmp_path / "clock.json"
    Clock(path, gpus=0, recorded=(700.0, 300.0)).save()
    flip_bit(path, random.Random(seed))
    assert Clock(path, gpus=0, recorded=(100.0, 50.0)).read()[1] in (50, 300)  # 300: only the checksum is damaged
