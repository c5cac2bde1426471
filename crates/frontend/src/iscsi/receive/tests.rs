use super::*;

fn header(ahs: &[u8], len: usize) -> Vec<u8> {
    let mut header = Header::new(0x01, 0x80);
    header.0[4] = u8::try_from(ahs.len() / 4).expect("short");
    header.set_segment_len(len);
    [&header.0[..], ahs].concat()
}

#[test]
fn a_header_is_whole_however_it_is_cut() {
    let bytes = [header(&[0, 1, 1, 0], 5), vec![9; 3]].concat();
    for cut in 1..=bytes.len() {
        let mut receiver = Receiver::new(false, false);
        let mut found = None;
        for part in bytes.chunks(cut) {
            let mut rest = part;
            if let Some(head) = receiver.head(&mut rest).expect("it is good") {
                receiver.begin(head.header, Body::Nothing(None));
                found = Some((head.header.segment_len(), head.ahs.long_cdb));
                break;
            }
            assert!(rest.is_empty());
        }
        assert_eq!(found, Some((5, true)), "cut {cut}");
    }
}

#[test]
fn a_segment_ends_with_its_padding() {
    let mut receiver = Receiver::new(false, false);
    let bytes = header(&[], 5);
    let head = receiver.head(&mut &bytes[..]).expect("good").expect("whole");
    receiver.begin(head.header, Body::Nothing(None));
    let segment = receiver.segment().expect("it is under way");
    assert_eq!(segment.left(), 5);
    segment.take_tail(&mut &[1, 2, 3][..]);
    segment.took(&[1; 5]);
    let mut rest = &[0, 0][..];
    segment.take_tail(&mut rest);
    assert!(receiver.end().is_none());
    let mut rest = &[0, 7][..];
    receiver.segment().expect("it is under way").take_tail(&mut rest);
    assert_eq!(rest, [7]);
    assert!(receiver.end().is_some_and(|(_, is_intact)| is_intact));
    assert!(receiver.is_between());
}

#[test]
fn an_empty_segment_ends_at_once() {
    let mut receiver = Receiver::new(true, true);
    let mut bytes = header(&[], 0);
    bytes.extend_from_slice(&crc(&bytes.clone()));
    let head = receiver.head(&mut &bytes[..]).expect("good").expect("whole");
    receiver.begin(head.header, Body::Nothing(None));
    assert!(receiver.end().is_some_and(|(_, is_intact)| is_intact));
}

#[test]
fn digests_tell_what_is_broken() {
    let mut receiver = Receiver::new(true, true);
    let mut bytes = header(&[], 5);
    bytes.extend_from_slice(&crc(&bytes.clone()));
    let mut broken = bytes.clone();
    broken[9] ^= 1;
    assert_eq!(receiver.head(&mut &broken[..]).map(|_| ()), Err(ProtocolError::HeaderDigest));

    for (data, is_good) in [(*b"hello", true), (*b"hallo", false)] {
        let mut receiver = Receiver::new(true, true);
        let head = receiver.head(&mut &bytes[..]).expect("good").expect("whole");
        receiver.begin(head.header, Body::Nothing(None));
        let segment = receiver.segment().expect("it is under way");
        segment.took(&data);
        let tail = [&[0; 3][..], &crc(b"hello\0\0\0")].concat();
        segment.take_tail(&mut &tail[..]);
        assert_eq!(receiver.end().map(|(_, is_intact)| is_intact), Some(is_good));
    }
}

#[test]
fn additional_headers_are_skipped_within_their_bounds() {
    let both = [&[0, 5, 2, 0, 0, 0, 1, 0][..], &[0, 2, 1, 0, 1, 0, 0, 0]].concat();
    assert_eq!(additional(&both), Ok(Ahs { long_cdb: true, bidirectional: true }));
    assert_eq!(additional(&[0, 0, 77, 0]), Ok(Ahs::default()));
    assert_eq!(additional(&[0, 2, 1, 0]), Err(ProtocolError::BrokenAhs));
    assert_eq!(additional(&[0xff, 0xff, 1, 0]), Err(ProtocolError::BrokenAhs));
}
