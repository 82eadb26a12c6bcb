"""A process that is ours from begin to end, made ready for reading captures and nothing else."""

import gc
import os
import sys

GARBAGE_OBJECTS = 100_000
"""So many new objects are looked through for garbage at a time."""


def settle_in() -> None:
    """Do without what costs a short command more than its work: Scapy, pandas, searches for garbage, idle threads."""
    import mqpcap.plain  # noqa: F401 - that it is there is what counts

    # What imports make stays: looking through it again and again takes a tenth of a short command.
    gc.set_threshold(GARBAGE_OBJECTS)
    # numpy's threads would spin for a tenth of a second, waiting for matrices that nobody here multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, NoPandas)


class NoPandas:
    """A finder that says there is no pandas.

    pyarrow imports it, where it is installed, as soon as a list becomes an array: half a second for nothing. (None in
    ``sys.modules`` does not do: what Cython compiled takes it for the module.)
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises for pandas; the other finders are asked for all else."""
        if name == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=name)
