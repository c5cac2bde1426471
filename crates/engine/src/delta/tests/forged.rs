//! Lies: frames whose checksums are right and whose content is not.
use super::*;
use crate::delta::books::Books;
use crate::delta::frame::{CHECKSUM_AT, Head, Kind};

/// A stream of these frames, numbered and sealed as they should be, with an end that is right for
/// their checksums. Nothing else of it is compared.
struct Forge {
    bytes: Vec<u8>,
    books: Books,
}

impl Forge {
    fn blank() -> Forge {
        Forge { bytes: Vec::new(), books: Books::open(&header()) }
    }

    fn begun() -> Forge {
        Forge::blank().frame(Kind::Header, &header().encode())
    }

    fn at(&self) -> StreamOffset {
        StreamOffset(self.bytes.len() as u64)
    }

    fn frame(self, kind: Kind, payload: &[u8]) -> Forge {
        self.changed(kind, payload, |_| {})
    }

    /// A frame whose head is changed before it is sealed.
    fn changed(mut self, kind: Kind, payload: &[u8], change: impl Fn(&mut [u8; HEAD])) -> Forge {
        let (number, payload_checksum) = (self.books.sums().frames, Checksum::of(payload));
        let mut head = Head { number, kind, payload: payload.len(), payload_checksum }.encode();
        change(&mut head);
        seal(&mut head);
        self.bytes.extend(head);
        self.bytes.extend(payload);
        self.books.frame(&head);
        self
    }

    fn end(self) -> Vec<u8> {
        let kind = Head::end(self.books.sums(), self.books.running()).kind;
        self.frame(kind, &[]).bytes
    }
}

fn seal(head: &mut [u8]) {
    let sum = Checksum::of(&head[..CHECKSUM_AT]).0;
    head[CHECKSUM_AT..HEAD].copy_from_slice(&sum.to_le_bytes());
}

fn hole(at: u64, len: u64, changed: Seq) -> Kind {
    Kind::Hole { offset: ByteOffset(at), changed, len: ByteLen(len) }
}

fn bytes_at(at: u64, data: &[u8]) -> Kind {
    let checksum = Checksum::of(data);
    Kind::Bytes { offset: ByteOffset(at), changed: Seq(1), checksum }
}

/// Protects from a stream of another release that is taken for damage, or for one of this.
#[test]
fn another_version_is_named_and_not_taken_for_damage() {
    for found in [0u16, 2, u16::MAX] {
        let other = |head: &mut [u8; HEAD]| head[4..6].copy_from_slice(&found.to_le_bytes());
        // What else a later version says is not looked at.
        let longer = |head: &mut [u8; HEAD]| {
            other(head);
            head[6] = 77;
            head[16..20].fill(0xff);
        };
        let expected = StreamError::Version { found, known: STREAM_VERSION };
        let forged = Forge::blank().changed(Kind::Header, &[1; 9], other);
        assert_eq!(refusal(&forged.bytes), expected);
        assert_eq!(refusal(&Forge::begun().changed(Kind::Header, &[], longer).bytes), expected);
    }
}

/// Protects from ranges that are applied where they do not belong.
#[test]
fn a_range_that_is_out_of_place_is_refused() {
    for (at, len, changed, problem) in wrong_ranges() {
        let forge = || Forge::begun().frame(hole(8192, 4096, Seq(9)), &[]);
        let expected = StreamError::Range { at: forge().at(), problem };
        let forged = forge().frame(hole(at, len, changed), &[]);
        assert_eq!(refusal(&forged.end()), expected);
        if len <= DATA_MAX {
            let data = vec![3; to_usize(len)];
            let kind =
                Kind::Bytes { offset: ByteOffset(at), changed, checksum: Checksum::of(&data) };
            assert_eq!(refusal(&forge().frame(kind, &data).end()), expected);
        }
    }
    let early = Header { resume_from: ByteOffset(65536), ..header() };
    let forged = Forge::blank().frame(Kind::Header, &early.encode());
    let (at, offset, reached) = (forged.at(), ByteOffset(61440), ByteOffset(65536));
    let problem = RangeError::Overlap { offset, reached };
    let found = refusal(&forged.frame(hole(61440, 4096, Seq(1)), &[]).bytes);
    assert_eq!(found, StreamError::Range { at, problem }, "before it goes on");
}

/// Protects from memory that a length asks for.
#[test]
fn a_frame_that_is_too_long_is_refused_before_it_is_awaited() {
    let longest = |kind: Kind| match kind {
        Kind::Header => HEADER_MAX as u64,
        Kind::Bytes { .. } => DATA_MAX,
        _ => 0,
    };
    let end = Kind::End { data: ByteLen(0), holes: ByteLen(0), running: Checksum(0) };
    for kind in [Kind::Header, bytes_at(0, &[]), hole(0, 4096, Seq(1)), end] {
        for len in [longest(kind) + 1, u64::from(u32::MAX)] {
            let forge = if kind == Kind::Header { Forge::blank() } else { Forge::begun() };
            let at = forge.at();
            let long = u32::try_from(len).unwrap().to_le_bytes();
            let forged = forge.changed(kind, &[], |head| head[16..20].copy_from_slice(&long));
            let (len, max) = (ByteLen(len), ByteLen(longest(kind)));
            assert_eq!(refusal(&forged.bytes), StreamError::TooLong { at, len, max });
        }
    }
}

#[test]
fn a_frame_of_the_wrong_kind_is_refused() {
    let kind = |at, expected, found| StreamError::Kind { at, expected, found };
    let start = StreamOffset(0);
    let data = [1; 4096];
    for (code, first) in [(2, bytes_at(0, &data)), (3, hole(0, 4096, Seq(1)))] {
        let payload = if code == 2 { &data[..] } else { &[] };
        let forged = Forge::blank().frame(first, payload);
        assert_eq!(refusal(&forged.bytes), kind(start, "the header", code));
    }
    assert_eq!(refusal(&Forge::blank().end()), kind(start, "the header", 4));
    let at = Forge::begun().at();
    let twice = Forge::begun().frame(Kind::Header, &header().encode());
    assert_eq!(refusal(&twice.end()), kind(at, "data, a hole or the end", 1));
    for code in [0, 5, 255] {
        let forged = Forge::begun().changed(Kind::Header, &[], |head| head[6] = code);
        assert_eq!(refusal(&forged.bytes), kind(at, "a kind from 1 to 4", code));
    }
}

/// Protects from compressed bytes that are imported as they are.
#[test]
fn data_of_an_unknown_encoding_is_refused() {
    for found in [1, 2, 255] {
        let at = Forge::begun().at();
        let data = [1; 4096];
        let forged = Forge::begun().changed(bytes_at(0, &data), &data, |head| head[7] = found);
        assert_eq!(refusal(&forged.end()), StreamError::Encoding { at, found });
    }
}

/// Protects from data that was ruined between the source's checksum and the frame.
#[test]
fn data_that_is_not_what_the_source_had_is_refused() {
    let at = Forge::begun().at();
    let forged = Forge::begun().frame(bytes_at(0, &[1; 4096]), &[2; 4096]);
    assert_eq!(refusal(&forged.end()), StreamError::Damaged { at, part: Part::Data });
}

/// Protects from an end that is of another stream, or of a part of this one.
#[test]
fn an_end_that_disagrees_with_its_stream_is_refused() {
    let forge = || {
        let forge = Forge::begun().frame(bytes_at(0, &[7; 4096]), &[7; 4096]);
        forge.frame(hole(4096, 8192, Seq(9)), &[])
    };
    let (data, holes, running) = (ByteLen(4096), ByteLen(8192), forge().books.running());
    let right = forge().frame(Kind::End { data, holes, running }, &[]);
    assert!(read(&right.bytes, &[64]).1.is_ok());
    let at = forge().at();
    let sums = |what, expected, found| StreamError::Sums { at, what, expected, found };
    let wrong = [
        (Kind::End { data: ByteLen(0), holes, running }, sums("bytes of data", 4096, 0)),
        (Kind::End { data, holes: ByteLen(1), running }, sums("bytes of holes", 8192, 1)),
        (
            Kind::End { data, holes, running: Checksum(running.0 ^ 1) },
            sums("the running checksum", running.0, running.0 ^ 1),
        ),
    ];
    for (end, expected) in wrong {
        assert_eq!(refusal(&forge().frame(end, &[]).bytes), expected);
    }
    let fewer = forge().changed(Kind::End { data, holes, running }, &[], |head| head[8] = 2);
    let (expected, found) = (3, 2);
    assert_eq!(refusal(&fewer.bytes), StreamError::Number { at, expected, found });
}

/// Protects from an import that begins with a header no source would write.
#[test]
fn a_header_that_cannot_be_is_refused_by_both_ends() {
    let (granule, unit) = (4096, 4096);
    let size = |size| (Header { size, ..header() }, HeaderError::Size { size, unit });
    let resume = |at| {
        let resume_from = ByteOffset(at);
        (Header { resume_from, ..header() }, HeaderError::ResumeFrom { resume_from, granule })
    };
    let named = |name: &str| {
        let snapshot = Snapshot { name: name.into(), ..header().snapshot };
        (Header { snapshot, ..header() }, HeaderError::Name { name: name.into() })
    };
    let based = |base, problem| (Header { base, ..header() }, problem);
    let old = |name: &str, position| Base::Snapshot { uid: [1; 16], name: name.into(), position };
    let high = Position::new(1, SEQ_MAX);
    let snapshot = Snapshot { position: high, ..header().snapshot };
    let too_high = HeaderError::SeqTooHigh { found: Seq(SEQ_MAX) };
    let later = HeaderError::BaseLater { base: Seq(100), snapshot: Seq(99) };
    let foreign = Header { own_sequence: false, base: Base::Seq(Seq(1)), ..header() };
    let cases = [
        size(ByteLen(0)),
        size(ByteLen(4096 + 512)),
        size(ByteLen(VOLUME_MAX + 4096)),
        resume(512),
        resume((1 << 20) + 4096),
        resume(u64::MAX),
        named("a\nb"),
        based(old("\u{7}", high), HeaderError::Name { name: "\u{7}".into() }),
        based(old("x", high), too_high.clone()),
        based(Base::Seq(Seq(100)), later),
        (Header { snapshot, ..header() }, too_high),
        (foreign, HeaderError::ForeignSeq),
    ];
    for (header, problem) in cases {
        let mut out = Vec::new();
        assert_eq!(Writer::new(&header, &mut out).unwrap_err(), problem);
        assert!(out.is_empty());
        let forged = Forge::blank().frame(Kind::Header, &header.encode());
        let at = StreamOffset(0);
        assert_eq!(refusal(&forged.bytes), StreamError::Header { at, problem });
    }
    let name = "n".repeat(NAME_MAX + 1);
    let (long, problem) = named(&name);
    assert_eq!(Writer::new(&long, &mut Vec::new()).unwrap_err(), problem);
}

/// Protects from a header's payload that is read past its end, or not to it.
#[test]
fn a_malformed_header_is_refused() {
    let good = header().encode();
    let refused = |payload: &[u8], what| {
        let found = refusal(&Forge::blank().frame(Kind::Header, payload).bytes);
        assert_eq!(found, StreamError::Malformed { at: StreamOffset(0), what });
    };
    for len in 0..good.len() {
        let found = refusal(&Forge::blank().frame(Kind::Header, &good[..len]).bytes);
        assert!(matches!(found, StreamError::Malformed { .. }), "cut to {len}: {found}");
    }
    refused(&[&good[..], &[0]].concat(), "header end");
    let name_at = 40 + 40;
    let base_at = name_at + 2 + 3;
    for (at, value, what) in [
        (24, 1, "block size"),
        (28, 2, "sequence"),
        (name_at, 255, "name"),
        (name_at + 2, 0xff, "name"),
        (base_at, 3, "base"),
    ] {
        let mut payload = good.clone();
        payload[at] = value;
        refused(&payload, what);
    }
}

/// Protects from a field that is believed because a checksum over it is right.
#[test]
fn random_lies_are_refused_or_in_order() {
    let (whole, _) = small();
    let payload = header().encode().len();
    let starts = [0, HEAD + payload, HEAD * 2 + payload + 4096, HEAD * 3 + payload + 4096];
    let (mut refused, mut read_on) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = Rng(seed);
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(2) {
            let start = starts[rng.index(starts.len())];
            if start == 0 && rng.chance(2) {
                bytes[HEAD + rng.index(payload)] = rng.next().to_le_bytes()[0];
                let sum = Checksum::of(&bytes[HEAD..HEAD + payload]).0;
                bytes[24..32].copy_from_slice(&sum.to_le_bytes());
            } else {
                let field = 4 + rng.index(HEAD - 12);
                bytes[start + field] ^= 1 << rng.below(8);
            }
            seal(&mut bytes[start..]);
        }
        let piece = 1 + rng.index(9000);
        let (found, result) = read(&bytes, &[piece]);
        assert_eq!(result.is_ok(), bytes == whole, "seed {seed}: {result:?}");
        let mut reached = found.header.as_ref().map_or(0, |header| header.resume_from.0);
        let size = found.header.as_ref().map_or(0, |header| header.size.0);
        for range in &found.ranges {
            let (Range::Bytes { offset, .. } | Range::Hole { offset, .. }) = range;
            assert!(offset.0 >= reached && range.end().0 <= size, "seed {seed}: {range:?}");
            reached = range.end().0;
        }
        refused += u64::from(result.is_err());
        read_on += u64::from(!found.ranges.is_empty());
        decode_any(&bytes);
    }
    assert!(refused > 10_000 && read_on > 5_000, "{refused} refused, {read_on} read on");
}
