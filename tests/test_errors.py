"""What errors say, and files that are let go."""

import io

from mqpcap.errors import CaptureError, let_go, one_line


def test_an_error_is_reported_on_one_line() -> None:
    assert one_line(CaptureError("no capture:\n  begins\twith 00")) == "no capture: begins with 00"


def test_a_temporary_file_that_found_no_room_is_let_go() -> None:
    class Full(io.BytesIO):
        def close(self) -> None:
            super().close()
            raise OSError(28, "No space left on device")

    file = Full()
    let_go(file)

    assert file.closed
