"""What the export is measured against, each as a whole process: ``python opponents.py floor|scapy ...``."""

import sys
from pathlib import Path


def prepare(tables: Path, to: Path) -> None:
    """The tables of an export as Arrow files, to be mapped and written again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    to.mkdir(parents=True, exist_ok=True)
    for folder in sorted(x for x in tables.iterdir() if x.is_dir()):
        whole = pa.concat_tables([pq.ParquetFile(f).read() for f in sorted(folder.rglob("*.parquet"))])
        with pa.ipc.new_file(to / f"{folder.name}.arrow", whole.schema) as writer:
            for batch in whole.to_batches(max_chunksize=1 << 17):
                writer.write_batch(batch)


def check(tables: Path, message_count: Path) -> None:
    """Ends with 1 if the tables have another number of messages, or one with a flaw."""
    import pyarrow.parquet as pq

    flaws = [pq.ParquetFile(f).read(["flaw"])["flaw"] for f in (tables / "messages").rglob("*.parquet")]
    rows, flawed = sum(len(x) for x in flaws), sum(len(x) - x.null_count for x in flaws)
    if (rows, flawed) != (int(str(message_count)), 0):
        sys.exit(f"{tables}: {rows} messages, {flawed} with a flaw, where {message_count} whole ones were sent")


def floor(capture: Path, arrow: Path, out: Path) -> None:
    """Read the file; write the same tables with the same settings."""
    import pyarrow as pa

    from mqpcap.tables.export import Export
    from mqpcap.tables.parquet import DATES

    with capture.open("rb", buffering=0) as file:
        room = bytearray(16 << 20)
        while file.readinto(room):
            pass
    with Export(out) as export:
        for path in sorted(arrow.glob("*.arrow")):
            with pa.memory_map(str(path)) as mapped:
                reader = pa.ipc.open_file(mapped)
                for i in range(reader.num_record_batches):
                    export.write(path.stem, reader.get_batch(i), DATES.get(path.stem, "ts_ns"))
        export.commit()


def scapy(capture: Path) -> None:
    """BlipMQ frame by frame with this project's own Scapy classes, over streams joined in order of packets."""
    from scapy.all import RawPcapReader

    from mqpcap.protocols.blipmq import BlipMQ

    streams: dict[bytes, bytearray] = {}
    for packet, _ in RawPcapReader(str(capture)):
        streams.setdefault(packet[26:38], bytearray()).extend(packet[54:])
    count = 0
    for stream in streams.values():
        at = 0
        while at + 13 <= len(stream):
            length = int.from_bytes(stream[at : at + 4], "big") + 4
            BlipMQ(bytes(stream[at : at + length]))
            at += length
            count += 1
    print(count)


if __name__ == "__main__":
    {"prepare": prepare, "check": check, "floor": floor, "scapy": scapy}[sys.argv[1]](*map(Path, sys.argv[2:]))
