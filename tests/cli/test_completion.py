"""What a shell is offered where a word is completed."""

import os
import subprocess
import sys
from pathlib import Path

import click
from running import ROOT, environment

from mqpcap.cli import main
from mqpcap.cli.completion import _Bash


def completed(*words: str) -> set[str]:
    """What bash is offered for the last word; that it asks like this is `test_bash_completes_rules_and_closed_sets`."""
    shell = _Bash(main, {}, "mqpcap", "_MQPCAP_COMPLETE")
    return {shell.format_completion(item) for item in shell.get_completions([*words[:-1]], words[-1])}


def test_files_are_left_to_the_shell() -> None:
    for command in ("show", "info", "export", "explain"):
        assert completed(command, "pcaps/bl") == {"file,pcaps/bl"}
    assert completed("export", "--out", "ta") == {"dir,ta"}


def test_protocols_operations_and_interfaces_are_completed() -> None:
    assert completed("show", "--protocol", "f") == {"plain,flymq", "plain,fq"}
    assert completed("explain", "--protocol", "bl") == {"plain,blipmq"}
    assert completed("show", "--op", "POL") == {"plain,POLL"}
    assert completed("show", "--protocol", "kokaq", "--op", "acq") == {"plain,AcquirePeekLock"}
    assert completed("show", "-i", "lo") >= {"plain,lo"}
    assert {"plain,show", "plain,spark"} <= completed("s")


def test_what_was_typed_in_capitals_stays() -> None:
    """PU is the beginning of PUBLISH and PURGE_DLQ; with Push a shell would leave only P of it."""
    from mqpcap.cli.completion import one_of

    offered = one_of(("PUBLISH", "PURGE_DLQ", "Push", "Ping"))
    context, option = click.Context(click.Command("show")), click.Option(["--op"])

    assert [x.value for x in offered(context, option, "PU")] == ["PUBLISH", "PURGE_DLQ"]
    assert [x.value for x in offered(context, option, "pin")] == ["Ping"]


def test_fields_are_completed() -> None:
    from click import Context

    from mqpcap.cli.completion import fields

    context = Context(main)
    names = {item.value for item in fields(context, main.params[0], "")}
    assert {"op", "destination", "latency_ns", "flymq.key", "fq.route", "msgq.lname"} <= names
    inside = {f"kokaq.metadata.{name}" for name in ("tag", "name", "value")}
    assert {item.value for item in fields(context, main.params[0], "kokaq.meta")} == inside


def test_bash_completes_rules_and_closed_sets(tmp_path: Path) -> None:
    """Bash cuts words at = before it asks, and puts what is offered after the last one."""
    script = tmp_path / "mqpcap"
    script.write_text(f"#!{sys.executable}\nfrom mqpcap.cli import main\nmain(prog_name='mqpcap')\n")
    script.chmod(0o755)

    def offered(*words: str) -> list[str]:
        code = (
            'compopt() { :; }; eval "$(_MQPCAP_COMPLETE=bash_source mqpcap)"; COMP_WORDS=("$@");'
            'COMP_CWORD=$(($# - 1)); _mqpcap_completion mqpcap; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
        call = ["bash", "-c", code, "-", "mqpcap", *words]
        return subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.split()

    assert offered("show", "-d", "tcp.port", "==", "7000,f") == ["7000,flymq", "7000,fq"]
    assert offered("show", "-d", "tcp.port", "==", "909") == ["9092,flymq"]
    assert offered("show", "--decode-as", "=", "tcp.port", "==", "7000,m") == ["7000,mqtt", "7000,msgq"]
    assert offered("show", "-d", "tcp.port", "==", "7000,fq", "--op", "stat") == ["status", "status_request"]
    assert offered("show", "--bodies", "n") == ["none"]
    assert offered("stats", "--by", "op,to") == ["op,topic"]
    assert offered("stats", "--metric", "co") == ["count"]
    assert offered("follow", "--raw", "c") == ["c2s"]
    assert offered("explain", "--protocol", "kokaq", "--dialect", "l") == ["lean"]
    for command in ("extract", "report"):
        assert completed(command, "--out", "x") == {"file,x"}
    assert completed("spark", "export", "pc") == {"file,pc"}


def test_the_completion_script_is_there_for_three_shells() -> None:
    code = "from mqpcap.cli import main; main(prog_name='mqpcap')"
    for shell in ("zsh", "fish"):
        env = environment(_MQPCAP_COMPLETE=f"{shell}_source")
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert "mqpcap" in said.stdout
    assert 'split -m 1 ","' in said.stdout, "in fish, too, values have commas"
