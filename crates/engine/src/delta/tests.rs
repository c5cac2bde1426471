//! What was written is what is read, however the bytes were cut; what was changed is refused.
mod damage;
mod fit;
mod forged;

use block::{ByteLen, ByteOffset, Position, Seq};

use super::frame::HEAD;
use super::header::HEADER_MAX;
use super::*;
use crate::limits::{NAME_MAX, SEQ_MAX, VOLUME_MAX};
use crate::units::{Checksum, to_usize};
use crate::volume::BlockSize;

/// Splitmix64: small, and the same everywhere.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn index(&mut self, len: usize) -> usize {
        to_usize(self.below(len as u64))
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(len)];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
        bytes
    }

    fn uid(&mut self) -> [u8; 16] {
        self.bytes(16).try_into().unwrap()
    }
}

/// What an export has to say of one range, and what an import has to learn.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Range {
    Bytes { offset: ByteOffset, changed: Seq, data: Vec<u8> },
    Hole { offset: ByteOffset, len: ByteLen, changed: Seq },
}

impl Range {
    fn write(&self, writer: &mut Writer, out: &mut Vec<u8>) -> Result<(), RangeError> {
        match self {
            Range::Bytes { offset, changed, data } => writer.bytes(*offset, *changed, data, out),
            Range::Hole { offset, len, changed } => writer.hole(*offset, *len, *changed, out),
        }
    }

    fn end(&self) -> ByteOffset {
        let (offset, len) = match self {
            Range::Bytes { offset, data, .. } => (offset, ByteLen(data.len() as u64)),
            Range::Hole { offset, len, .. } => (offset, *len),
        };
        offset.end(len).unwrap()
    }
}

/// A stream, before it is written or after it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Delta {
    header: Option<Header>,
    ranges: Vec<Range>,
    end: Option<Sums>,
}

impl Delta {
    fn take(&mut self, item: Item) {
        assert!(self.end.is_none(), "the end is the last item");
        match item {
            Item::Header(header) => assert_eq!(self.header.replace(*header), None),
            Item::Bytes { offset, changed, data } => {
                self.ranges.push(Range::Bytes { offset, changed, data: data.to_vec() });
            }
            Item::Hole { offset, len, changed } => {
                self.ranges.push(Range::Hole { offset, len, changed });
            }
            Item::End(sums) => self.end = Some(sums),
        }
    }

    fn is_prefix_of(&self, whole: &Delta) -> bool {
        (self.header.is_none() || self.header == whole.header)
            && whole.ranges.starts_with(&self.ranges)
            && (self.end.is_none() || self == whole)
    }
}

/// Pushes one piece and takes what it completes.
fn feed(reader: &mut Reader, mut piece: &[u8], read: &mut Delta) -> Result<(), StreamError> {
    while !piece.is_empty() {
        piece = reader.push(piece);
        while let Some(item) = reader.next()? {
            read.take(item);
        }
        assert!(reader.memory() <= HEAD + to_usize(DATA_MAX), "more than one frame is held");
    }
    Ok(())
}

/// Reads a stream in pieces of these lengths, again and again; and what was yielded before it was
/// refused, if it was.
fn read(bytes: &[u8], pieces: &[usize]) -> (Delta, Result<Sums, StreamError>) {
    let (mut reader, mut read) = (Reader::new(), Delta::default());
    let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
        rest = behind;
        if let Err(error) = feed(&mut reader, piece, &mut read) {
            assert_eq!(reader.finish(), Err(error.clone()), "what was refused stays refused");
            assert_eq!(reader.next().unwrap_err(), error);
            return (read, Err(error));
        }
    }
    (read, reader.finish())
}

fn refusal(bytes: &[u8]) -> StreamError {
    read(bytes, &[usize::MAX]).1.unwrap_err()
}

fn header() -> Header {
    Header {
        volume: [0xa5; 16],
        block_size: BlockSize::new(4096).unwrap(),
        size: ByteLen(1 << 20),
        base: Base::Snapshot { uid: [1; 16], name: "old".into(), position: Position::new(3, 50) },
        snapshot: Snapshot {
            uid: [2; 16],
            name: "new".into(),
            position: Position::new(3, 99),
            created_ms: 1_700_000_000_000,
        },
        own_sequence: true,
        resume_from: ByteOffset(0),
    }
}

fn written(header: &Header, ranges: &[Range]) -> (Vec<u8>, Delta) {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(header, &mut bytes).unwrap();
    for range in ranges {
        range.write(&mut writer, &mut bytes).unwrap();
    }
    let end = writer.finish(&mut bytes);
    (bytes, Delta { header: Some(header.clone()), ranges: ranges.to_vec(), end: Some(end) })
}

/// Small enough to try every byte of it, with a frame of every kind.
fn small() -> (Vec<u8>, Delta) {
    let ranges = [
        Range::Bytes { offset: ByteOffset(4096), changed: Seq(51), data: vec![0xd1; 4096] },
        Range::Hole { offset: ByteOffset(8192), len: ByteLen(65536), changed: Seq(99) },
        Range::Bytes { offset: ByteOffset(1 << 19), changed: Seq(60), data: vec![0xd2; 8192] },
    ];
    written(&header(), &ranges)
}

fn random_header(rng: &mut Rng) -> Header {
    let block_size = BlockSize::new(512 << rng.below(9)).unwrap();
    let size = ByteLen((1 + rng.below(300)) * block_size.bytes());
    let newest = rng.next() % SEQ_MAX;
    let own_sequence = rng.chance(2);
    let name = |rng: &mut Rng| "ñ".repeat(rng.index(NAME_MAX / 2 + 1));
    let base = match rng.below(3) {
        0 => Base::Empty,
        1 if own_sequence => Base::Seq(Seq(rng.below(newest + 1))),
        _ => Base::Snapshot {
            uid: rng.uid(),
            name: name(rng),
            position: Position::new(rng.next(), rng.next() % SEQ_MAX),
        },
    };
    let granules = size.0 / block_size.granule();
    let resume_from = match rng.below(4) {
        0 => rng.below(granules + 1) * block_size.granule(),
        1 => size.0,
        _ => 0,
    };
    Header {
        volume: rng.uid(),
        block_size,
        size,
        base,
        snapshot: Snapshot {
            uid: rng.uid(),
            name: name(rng),
            position: Position::new(rng.next(), newest),
            created_ms: rng.next(),
        },
        own_sequence,
        resume_from: ByteOffset(resume_from),
    }
}

fn random_ranges(rng: &mut Rng, header: &Header) -> Vec<Range> {
    let (granule, size) = (header.block_size.granule(), header.size.0);
    let (mut at, mut ranges) = (header.resume_from.0, Vec::new());
    while ranges.len() < 12 {
        at += if rng.chance(2) { rng.below(5) * granule } else { 0 };
        if at >= size {
            break;
        }
        let changed = Seq(rng.below(header.snapshot.position.seq.0 + 1));
        let offset = ByteOffset(at);
        let hole = rng.chance(3);
        let most = if hole { size } else { DATA_MAX };
        let granules = if rng.chance(8) { most / granule } else { 1 + rng.below(2) };
        let len = (granules * granule).min(size - at);
        ranges.push(match hole {
            true => Range::Hole { offset, len: ByteLen(len), changed },
            false => Range::Bytes { offset, changed, data: rng.bytes(len) },
        });
        at += len;
    }
    ranges
}

/// Protects from a field that is read otherwise than it was written, and from a frame that is lost
/// or torn where a piece ends.
#[test]
fn streams_are_read_as_they_were_written_however_they_are_cut() {
    let (mut ranges_seen, mut longest, mut cut_by_the_end) = (0, 0, 0);
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let header = random_header(&mut rng);
        let ranges = random_ranges(&mut rng, &header);
        let (bytes, expected) = written(&header, &ranges);
        let most = if rng.chance(4) { bytes.len() } else { 200 + rng.index(5000) };
        let pieces: Vec<usize> = (0..50).map(|_| 1 + rng.index(most)).collect();
        let (found, result) = read(&bytes, &pieces);
        assert_eq!(result, Ok(expected.end.unwrap()), "seed {seed}");
        assert!(found == expected, "seed {seed}: something else was read");
        ranges_seen += ranges.len();
        for range in &ranges {
            let granule = header.block_size.granule();
            cut_by_the_end += u64::from(!range.end().0.is_multiple_of(granule));
            if let Range::Bytes { data, .. } = range {
                longest = longest.max(data.len() as u64);
            }
        }
    }
    assert!(ranges_seen > 10_000 && cut_by_the_end > 100, "{ranges_seen}, {cut_by_the_end}");
    assert_eq!(longest, DATA_MAX, "the longest frame was among them");
}

#[test]
fn a_stream_may_come_byte_by_byte() {
    let (bytes, expected) = small();
    let (found, result) = read(&bytes, &[1]);
    assert_eq!(result, Ok(expected.end.unwrap()));
    assert_eq!(found, expected);
}

/// Protects from a stream without ranges that is taken for nothing, or for a cut one.
#[test]
fn a_stream_without_a_difference_is_whole() {
    let (bytes, expected) = written(&header(), &[]);
    let (found, result) = read(&bytes, &[7]);
    let sums = Sums { frames: 1, data: ByteLen(0), holes: ByteLen(0) };
    assert_eq!((found, result), (expected, Ok(sums)));
}

/// Protects from a change of the format that its version does not tell.
#[test]
fn version_1_is_these_bytes() {
    let (bytes, _) = small();
    let payload = 40 + 42 + 3 + 1 + 34 + 3;
    assert_eq!(bytes.len(), HEAD * 5 + payload + 4096 + 8192);
    assert_eq!(bytes[..8], *b"PLXD\x01\0\x01\0");
    assert_eq!(bytes[16..20], u32::try_from(payload).unwrap().to_le_bytes());
    let hole = &bytes[HEAD + payload + HEAD + 4096..][..HEAD];
    let mut expected = [0; HEAD];
    expected[..9].copy_from_slice(b"PLXD\x01\0\x03\0\x02");
    expected[32..40].copy_from_slice(&8192u64.to_le_bytes());
    expected[40..48].copy_from_slice(&99u64.to_le_bytes());
    expected[48..56].copy_from_slice(&65536u64.to_le_bytes());
    let sum = Checksum::of(&expected[..56]).0;
    expected[56..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(hole, expected);
    // FNV-1a: a CRC over bytes and their own CRC is the same whatever the bytes.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    bytes.iter().for_each(|b| hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(hash, GOLDEN, "the bytes of version 1 are fixed");
}

/// Computed by another program, which was written from the tables in `docs/format.md` alone.
const GOLDEN: u64 = 0xafc2_29cd_690f_d258;

/// Protects from names and numbers that fit no header.
#[test]
fn a_header_holds_its_largest_values() {
    let name = "n".repeat(NAME_MAX);
    let position = Position::new(u64::MAX, SEQ_MAX - 1);
    let largest = Header {
        volume: [0xff; 16],
        block_size: BlockSize::new(128 << 10).unwrap(),
        size: ByteLen(VOLUME_MAX),
        base: Base::Snapshot { uid: [0xfe; 16], name: name.clone(), position },
        snapshot: Snapshot { uid: [0xfd; 16], name, position, created_ms: u64::MAX },
        own_sequence: false,
        resume_from: ByteOffset(VOLUME_MAX),
    };
    assert_eq!(largest.encode().len(), HEADER_MAX);
    let whole = Header { resume_from: ByteOffset(0), ..largest.clone() };
    let hole = Range::Hole { offset: ByteOffset(0), len: whole.size, changed: Seq(SEQ_MAX - 1) };
    for (header, ranges) in [(largest, vec![]), (whole, vec![hole])] {
        let (bytes, expected) = written(&header, &ranges);
        let (found, result) = read(&bytes, &[97]);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(found, expected);
    }
}

/// Protects from a source that writes what no destination takes, and from half a frame of it.
#[test]
fn a_writer_refuses_what_a_reader_would_and_leaves_no_byte() {
    let (mut bytes, granule) = (Vec::new(), 4096);
    let mut writer = Writer::new(&header(), &mut bytes).unwrap();
    let first = Range::Hole { offset: ByteOffset(8192), len: ByteLen(4096), changed: Seq(1) };
    first.write(&mut writer, &mut bytes).unwrap();
    let before = bytes.clone();
    let size = ByteLen(1 << 20);
    for (at, len, changed, expected) in wrong_ranges() {
        let (offset, len) = (ByteOffset(at), ByteLen(len));
        let found = writer.hole(offset, len, changed, &mut bytes);
        assert_eq!(found, Err(expected), "a hole at {at}");
        if len <= size {
            let data = vec![1; to_usize(len.0)];
            assert_eq!(writer.bytes(offset, changed, &data, &mut bytes), Err(expected));
        }
    }
    let data = vec![1; to_usize(DATA_MAX) + granule];
    let too_long = RangeError::TooLong { len: ByteLen(data.len() as u64), max: ByteLen(DATA_MAX) };
    assert_eq!(writer.bytes(ByteOffset(16384), Seq(1), &data, &mut bytes), Err(too_long));
    assert_eq!(bytes, before);
    let sums = writer.finish(&mut bytes);
    assert_eq!(read(&bytes, &[1000]).1, Ok(sums), "and the stream can go on");
}

/// What is wrong behind a range of 4096 bytes at 8192, in a volume of 1 MiB as of seq 99.
fn wrong_ranges() -> Vec<(u64, u64, Seq, RangeError)> {
    let (size, granule, changed) = (ByteLen(1 << 20), 4096, Seq(99));
    let reached = ByteOffset(12288);
    let empty = |at| RangeError::Empty { offset: ByteOffset(at) };
    let overlap = |at| RangeError::Overlap { offset: ByteOffset(at), reached };
    let unaligned = |at, len| {
        let (offset, len) = (ByteOffset(at), ByteLen(len));
        (at, len.0, changed, RangeError::Unaligned { offset, len, granule })
    };
    let beyond = |at, len| {
        let (offset, len) = (ByteOffset(at), ByteLen(len));
        (at, len.0, changed, RangeError::BeyondEnd { offset, len, size })
    };
    let snapshot = Seq(99);
    let later =
        |changed| RangeError::LaterThanSnapshot { offset: ByteOffset(16384), changed, snapshot };
    vec![
        (16384, 0, changed, empty(16384)),
        (0, 4096, changed, overlap(0)),
        (4096, 8192, changed, overlap(4096)),
        (8192, 4096, changed, overlap(8192)),
        (8192, 8192, changed, overlap(8192)),
        unaligned(16384 + 512, 4096),
        unaligned(16384, 4096 + 512),
        unaligned(16385, 4095),
        beyond(1 << 20, 4096),
        beyond((1 << 20) - 4096, 8192),
        beyond(u64::MAX - 4095, 4096),
        beyond(u64::MAX - 4095, u64::MAX),
        (16384, 4096, Seq(100), later(Seq(100))),
        (16384, 4096, Seq(u64::MAX), later(Seq(u64::MAX))),
    ]
}

/// Protects from an interrupted export whose two halves are less, or other, than the whole.
#[test]
fn an_interrupted_stream_goes_on_where_the_last_whole_frame_ended() {
    let (bytes, whole) = small();
    for len in 0..bytes.len() {
        let (mut reader, mut first) = (Reader::new(), Delta::default());
        feed(&mut reader, &bytes[..len], &mut first).unwrap();
        assert!(first.is_prefix_of(&whole));
        let progress = reader.progress();
        let last = first.ranges.last().map_or(ByteOffset(0), Range::end);
        assert_eq!(progress, last, "cut at {len}");
        let rest = &whole.ranges[first.ranges.len()..];
        let resumed = Header { resume_from: progress, ..header() };
        let (bytes, _) = written(&resumed, rest);
        let (second, result) = read(&bytes, &[500]);
        assert!(result.is_ok());
        assert_eq!([first.ranges, second.ranges].concat(), whole.ranges, "cut at {len}");
    }
}
