"""The palette: colours of one lane that can be told apart by everybody, with text that can be read on them."""

import itertools

import numpy as np
import pytest
from trace_reader.report.theme import COLOURS, CPU_COLOURS, GPU_COLOURS, PATH_COLOURS, ink

# Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def cielab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    xyz = xyz / (0.95047, 1, 1.08883)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("colours", [CPU_COLOURS, GPU_COLOURS, PATH_COLOURS], ids=["CPU", "GPU", "path"])
def test_colours_of_one_lane_can_be_told_apart(colours, kind):
    seen = {}
    for name, colour in colours.items():
        srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen[name] = cielab(np.array(BLINDNESS[kind]) @ linear)
    closest = min((np.linalg.norm(seen[a] - seen[b]), a, b) for a, b in itertools.combinations(seen, 2))
    assert closest[0] > 15, closest


def luminance(colour):
    srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


@pytest.mark.parametrize("name", COLOURS)
def test_text_can_be_read_on_each_colour(name):
    """At a contrast of 4.5 or more (WCAG 2.1, AA), in the ink that pictures write in."""
    pair = sorted((luminance(COLOURS[name]), {"black": 0.0, "white": 1.0}[ink(COLOURS[name])]))
    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5
