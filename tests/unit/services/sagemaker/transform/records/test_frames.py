"""RecordIO and TFRecord are cut between records, and damage is found."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.transform.records.cutting import (
    Batch,
    BrokenRecords,
    RecordsError,
    RecordTooLarge,
    make_cutter,
)
from sagehen.services.sagemaker.transform.records.frames import masked_crc
from support.chunks import chunkings, divided

MAGIC = struct.pack("<I", 0xCED7230A)
CONTENTS = st.lists(
    st.lists(st.sampled_from([b"a", b"bcde", MAGIC, b"\0"]), max_size=6).map(b"".join), max_size=12
)


def recordio(content: bytes) -> bytes:
    """As MXNet writes it: divided at magic numbers that lie at multiples of four bytes."""
    parts, begin = [], 0
    for at in range(0, len(content) // 4 * 4, 4):
        if content[at : at + 4] == MAGIC:
            parts.append(content[begin:at])
            begin = at + 4
    parts.append(content[begin:])
    flags = [0] if len(parts) == 1 else [1, *([2] * (len(parts) - 2)), 3]
    return b"".join(
        MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts, strict=True)
    )


def tfrecord(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc(length)),
            content,
            struct.pack("<I", masked_crc(content)),
        )
    )


FRAMES = {"RecordIO": recordio, "TFRecord": tfrecord}


def cut(split_type, data, limit=0, sizes=(), strategy="MultiRecord") -> list[Batch]:
    cutter = make_cutter(split_type, strategy, limit)
    batches = []
    for piece in divided(data, list(sizes)):
        batches += cutter.feed(piece)
    return batches + cutter.end()


def outcome(*args, **options):
    try:
        return cut(*args, **options)
    except RecordsError as error:
        return type(error), error.record, error.offset, str(error)


def test_frames_that_tensorflow_wrote_are_read():
    written = "0300000000000000b099490e6f6e6501405508000000000000000029039807d8ea82a2"
    assert tfrecord(b"one") + tfrecord(b"") == bytes.fromhex(written)
    assert [
        batch.payload for batch in cut("TFRecord", bytes.fromhex(written), 0, (), "SingleRecord")
    ] == [b"one", b""]


@pytest.mark.parametrize("split_type", FRAMES)
def test_single_records_have_no_frames(split_type):
    data = b"".join(map(FRAMES[split_type], [b"one", b"", b"three"]))
    assert cut(split_type, data, 5, strategy="SingleRecord") == [
        Batch(b"one", 1, 0),
        Batch(b"", 1, 1),
        Batch(b"three", 1, 2),
    ]


@pytest.mark.parametrize("split_type", FRAMES)
def test_several_records_keep_their_frames(split_type):
    frames = [FRAMES[split_type](content) for content in (b"one", b"two", b"three")]
    limit = len(frames[0]) + len(frames[1])
    assert cut(split_type, b"".join(frames), limit) == [
        Batch(frames[0] + frames[1], 2, 0),
        Batch(frames[2], 1, 2),
    ]


@pytest.mark.parametrize("split_type", FRAMES)
@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
@given(contents=CONTENTS, limit=st.integers(16, 80), sizes=chunkings(30))
def test_batches_do_not_depend_on_how_the_object_comes(
    split_type, strategy, contents, limit, sizes
):
    frames = list(map(FRAMES[split_type], contents))
    data = b"".join(frames)
    batches = outcome(split_type, data, limit, strategy=strategy)
    assert outcome(split_type, data, limit, sizes, strategy) == batches
    payloads = contents if strategy == "SingleRecord" else frames
    if isinstance(batches, tuple):
        assert batches[0] is RecordTooLarge
        assert len(payloads[batches[1]]) > limit
        return
    at = 0
    for batch in batches:
        assert batch.first_record == at
        assert len(batch.payload) <= limit
        assert batch.payload == b"".join(payloads[at : at + batch.records])
        at += batch.records
    assert at == len(contents)


@pytest.mark.parametrize("split_type", FRAMES)
@given(contents=CONTENTS, at=st.integers(0, 200), sizes=chunkings(30), data=st.data())
def test_damage_is_found_at_the_same_place_however_the_object_comes(
    split_type, contents, at, sizes, data
):
    good = b"".join(map(FRAMES[split_type], contents))
    flipped = bytearray(good)
    if flipped:
        flipped[at % len(flipped)] ^= data.draw(st.integers(1, 255))
    expected = outcome(split_type, bytes(flipped), 10_000)
    assert outcome(split_type, bytes(flipped), 10_000, sizes) == expected
    if flipped and split_type == "TFRecord":
        assert expected[0] in (BrokenRecords, RecordTooLarge)


@pytest.mark.parametrize("split_type", FRAMES)
def test_an_object_that_ends_inside_a_record_is_broken(split_type):
    data = FRAMES[split_type](b"first") + FRAMES[split_type](b"second")
    for end in range(len(FRAMES[split_type](b"first")) + 1, len(data)):
        with pytest.raises(BrokenRecords, match=r"Record 1 at byte .* ends inside the record") as e:
            cut(split_type, data[:end])
        assert e.value.offset == len(FRAMES[split_type](b"first"))


def test_a_wrong_magic_number_says_where():
    with pytest.raises(BrokenRecords, match="Record 1 at byte 12: the magic number is 0x74786574"):
        cut("RecordIO", recordio(b"abcd") + b"text" * 4)


def test_a_part_without_its_beginning_is_broken():
    stray = MAGIC + struct.pack("<I", 3 << 29 | 4) + b"abcd"
    with pytest.raises(BrokenRecords, match="Record 0 at byte 4: the part flag is 3, not 0 or 1"):
        cut("RecordIO", stray)


def test_wrong_checksums_say_where():
    frames = bytearray(tfrecord(b"first") + tfrecord(b"second"))
    frames[21] ^= 1
    with pytest.raises(BrokenRecords, match="Record 1 at byte 21: the checksum of the length"):
        cut("TFRecord", bytes(frames))
    frames[21] ^= 1
    frames[-5] ^= 1
    with pytest.raises(BrokenRecords, match="Record 1 at byte 33: the checksum of the data"):
        cut("TFRecord", bytes(frames))


@pytest.mark.parametrize("split_type", FRAMES)
def test_a_large_record_is_refused_by_its_head(split_type):
    head = FRAMES[split_type](bytes(1000))[:12]
    with pytest.raises(RecordTooLarge, match="Record 0, which begins at byte 0"):
        make_cutter(split_type, "SingleRecord", 999).feed(head)


def test_a_record_in_parts_is_too_large_as_a_whole():
    data = recordio(b"aaaa" + MAGIC + b"bbbb")
    assert cut("RecordIO", data, 12, strategy="SingleRecord")[0].payload[4:8] == MAGIC
    with pytest.raises(RecordTooLarge):
        cut("RecordIO", data, 11, strategy="SingleRecord")
