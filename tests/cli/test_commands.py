"""The command line: exit codes, what goes where, and that no secret is ever shown unasked."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, environment, objects, run

from mqpcap.cli import main

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_nothing_to_do_is_misuse() -> None:
    assert run("show").exit_code == 2
    assert run("nonsense").exit_code == 2
    assert run("export", QOS1).exit_code == 2


SECRETS = {
    QOS1: [b"dev-key"],
    "pcaps/fq/session.pcap": [b"watchpw", b"pw-of-bob"],
    "pcaps/flymq/login.pcap": [b"adminpw-1"],
}


@pytest.mark.parametrize("name", SECRETS)
def test_no_command_shows_a_secret_unasked(name: str, tmp_path: Path) -> None:
    assert any(secret in (ROOT / name).read_bytes() for secret in SECRETS[name])
    packets = sorted({int(str(row["first_packet"])) for row in objects(run("show", "-q", "--json", name))
                      if "auth" in str(row["op"]).lower()})[:1]  # fmt: skip
    said = [
        run("show", "-q", "-v", "-x", name).stdout,
        run("show", "-q", "--json", name).stdout,
        *(run("explain", "-q", *form, "--at", str(p), name).stdout for p in packets for form in ([], ["--json"])),
    ]
    run("export", "-q", name, "--out", tmp_path / "t")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "t").rglob("*.parquet"))

    for secret in SECRETS[name]:
        for text in said:
            digits = "".join(re.findall(r"  ((?:[0-9a-f]{2} {1,2})+)", text)).replace(" ", "")
            assert secret.decode() not in text
            assert secret.hex() not in digits
            assert secret.hex() not in text
        assert secret not in stored
    assert "***" in said[0]


def test_secrets_are_shown_when_asked() -> None:
    assert "dev-key" in run("show", "-q", "-v", "--show-secrets", QOS1).stdout
    assert "65 76 2d 6b 65 79" in run("show", "-q", "-x", "--show-secrets", QOS1).stdout.replace("  ", " ")


def test_help_of_every_command_ends_with_an_example_that_runs() -> None:
    for name, command in main.commands.items():
        said = run(name, "--help").stdout
        examples = re.search(r"Examples?: mqpcap (.+)\Z", said, re.DOTALL)  # may take two lines
        assert examples, name
        if name in ("ask", "export", "extract", "lake", "report", "spark"):
            continue  # test_ask.py, test_readme.py, test_extract.py, test_lake.py, ... and tests/spark/test_job.py do
        for example in examples[1].split("mqpcap "):
            assert run(*shlex.split(example)).exit_code == 0
        assert command.help


def test_the_script_is_the_module() -> None:
    """What pip makes of the entry point in pyproject.toml: the command under its own name."""
    code = "import sys; sys.argv[0] = 'mqpcap'; from mqpcap.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", code, "show", "-u", QOS1], cwd=ROOT, env=environment(),
                          capture_output=True, text=True, check=True)  # fmt: skip

    assert said.stdout == run("show", "-u", QOS1).stdout != ""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from mqpcap.cli import main; "
        "CliRunner().invoke(main, ['export', '--help']); "
        "print([m for m in ('scapy', 'pyarrow', 'numpy', 'rich') if m in sys.modules]); "
        "light = ('cli', 'errors', 'reading', 'records', 'wording', 'statistics'); "
        "print([m for m in sys.modules if m.startswith('mqpcap.') and m.split('.')[1] not in light])"
    )

    said = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)

    assert said.stdout.splitlines() == ["[]", "[]"]
