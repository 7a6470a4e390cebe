# SPDX-License-Identifier: Apache-2.0
"""Every golden case through Python."""

import pytest
from conftest import ROOT
from golden import SYSTEMS, Case

CASES = sorted((ROOT / "tests/golden").glob("*.safetensors"))


def test_the_cases_are_there():
    assert len(CASES) > 200


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_case(path, device):
    case = Case(path, device)
    SYSTEMS[case.system](case)
    case.compare()
