"""``mqpcap spark``: what is told without a cluster."""

import click
import pytest
from running import run

from mqpcap.cli.spark import _conf


def test_help_of_the_command_below_spark_ends_with_the_same_example() -> None:
    whole, below = (run(*words, "--help").stdout for words in (("spark",), ("spark", "export")))

    assert whole.splitlines()[-1] == below.splitlines()[-1] != ""


def test_a_setting_is_a_key_and_the_text_after_its_first_equals_sign() -> None:
    assert _conf(("spark.a=1", "b=x=y", "c=", "b=z")) == {"spark.a": "1", "b": "z", "c": ""}
    with pytest.raises(click.BadParameter, match="'oops' is no KEY=VALUE"):
        _conf(("a=1", "oops"))
