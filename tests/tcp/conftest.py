"""What tests of streams share."""

import pytest


@pytest.fixture(params=[1, 1000])
def window(request: pytest.FixtureRequest) -> int:
    return int(request.param)
