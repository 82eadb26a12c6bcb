"""``mqpcap spark``: what is told without a cluster."""

from running import run


def test_help_of_the_command_below_spark_ends_with_the_same_example() -> None:
    whole, below = (run(*words, "--help").stdout for words in (("spark",), ("spark", "export")))

    assert whole.splitlines()[-1] == below.splitlines()[-1] != ""
