"""Several files: lines on a terminal name the file of a packet shortly, and explain takes these names."""

from running import lines_on_terminal, run

FOLDER = "pcaps/fq"
PATHS = ["errors.pcap", "midstream.pcap", "node_client.pcap", "peers.pcap", "session.pcap"]


def test_lines_fit_80_columns_and_a_legend_has_the_paths() -> None:
    lines = lines_on_terminal(80, "show", "-q", "-u", FOLDER)
    legend = [line for line in lines if " is pcaps/" in line]

    assert sorted(legend) == [f"f{i} is {FOLDER}/{name}" for i, name in enumerate(PATHS, 1)]
    assert max(map(len, lines)) <= 80
    first = next(line for line in lines if "  f3#7 " in line)
    assert "connect" in first and "group=nodeq" in first


def test_explain_takes_the_short_name() -> None:
    short, long = (run("explain", "-q", FOLDER, "--at", name).stdout for name in ("f3#7", f"{FOLDER}/{PATHS[2]}#7"))

    assert short == long != ""


def test_a_file_that_is_none_is_named() -> None:
    for name in ("f33", "nothing.pcap"):
        ended = run("explain", FOLDER, "--at", f"{name}#7")
        assert (ended.exit_code, ended.stderr) == (1, f"mqpcap: {FOLDER}: there is no file {name}\n")


def test_elsewhere_lines_have_the_path() -> None:
    lines = run("show", "-q", "-u", FOLDER).stdout.splitlines()

    assert all(f"{FOLDER}/" in line and ".pcap#" in line for line in lines)
