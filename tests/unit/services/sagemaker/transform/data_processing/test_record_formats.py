"""Large batches are divided by their lines, if these are their records."""

from sagehen.services.sagemaker.transform.data_processing.record_formats import divide_lines
from sagehen.services.sagemaker.transform.records.batches import Batch


def test_lines_and_answers_are_divided_together() -> None:
    lines = [b"%d\n" % number for number in range(5000)]
    parts = divide_lines(Batch(b"".join(lines), 5000, 7), b"".join(lines))
    assert [(part.records, part.first_record) for part, _ in parts] == [
        (2048, 7),
        (2048, 2055),
        (904, 4103),
    ]
    assert [part.payload for part, _ in parts] == [answer for _, answer in parts]
    assert b"".join(answer for _, answer in parts) == b"".join(lines)


def test_a_batch_with_other_lines_than_records_keeps_all_its_records() -> None:
    batch = Batch(b"one line", 5000, 7)
    assert divide_lines(batch, b"") == [(batch, b"")]
    assert divide_lines(batch, b"1\n" * 5000) == [(batch, b"1\n" * 5000)]
