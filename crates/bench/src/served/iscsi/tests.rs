use super::*;

fn begun() -> Begun {
    Begun {
        lun: 0,
        segment_max: 64 << 10,
        first_burst: 64 << 10,
        immediate_data: true,
        cmd_sn: 1,
        exp_stat_sn: 1,
        max_cmd_sn: 2,
        block: 512,
        blocks: 1 << 20,
    }
}

fn start(depth: usize) -> (Iscsi, Outbox, Content) {
    let content = Content::new();
    (Iscsi::new(begun(), depth, content.clone()), Outbox::new(content.clone()), content)
}

fn sent(out: &mut Outbox) -> Vec<u8> {
    let mut bytes = Vec::new();
    out.send(&mut bytes).unwrap();
    bytes
}

fn head(bytes: &[u8]) -> Head {
    Head(*bytes.first_chunk().unwrap())
}

fn response(lane: u32, status: u8) -> Head {
    let head = Head::new(pdu::RESPONSE, pdu::FINAL).with(pdu::TASK, lane);
    head.with_bytes(3, &[status]).with(pdu::STAT_SN, 7).with(pdu::MAX_CMD_SN, 3)
}

#[test]
fn a_read_may_come_in_any_pieces_and_with_its_status() {
    let content = Content::new();
    let first = Head::new(pdu::DATA_IN, 0).with(pdu::MAX_CMD_SN, 9).with_data(4096);
    let last = Head::new(pdu::DATA_IN, pdu::FINAL | HAS_STATUS)
        .with(pdu::MAX_CMD_SN, 9)
        .with(40, 4096)
        .with_data(4096);
    let stream = [&first.0[..], content.at(0, 4096), &last.0, content.at(4096, 4096)].concat();
    for cut in 1..stream.len() {
        let mut iscsi = Iscsi::new(begun(), 1, content.clone());
        let mut out = Outbox::new(content.clone());
        iscsi.begin(0, Step::Read { offset: 0, len: 8192 }, &mut out);
        let mut done = Vec::new();
        let taken = iscsi.take(&stream[..cut], &mut out, &mut done).unwrap();
        let rest = iscsi.take(&stream[taken..], &mut out, &mut done).unwrap();
        assert_eq!((taken + rest, done), (stream.len(), vec![0]));
    }
}

#[test]
fn a_long_write_sends_its_first_burst_and_then_what_is_asked_for() {
    let (mut iscsi, mut out, content) = start(1);
    iscsi.begin(0, Step::Write { offset: 0, len: 256 << 10 }, &mut out);
    let bytes = sent(&mut out);
    assert_eq!((head(&bytes).data_len(), bytes.len()), (64 << 10, HEAD + (64 << 10)));
    let r2t = Head::new(pdu::R2T, pdu::FINAL).with(20, 5).with(40, 64 << 10).with(44, 192 << 10);
    let mut done = Vec::new();
    iscsi.take(&r2t.0, &mut out, &mut done).unwrap();
    let bytes = sent(&mut out);
    assert_eq!(bytes.len(), 3 * (HEAD + (64 << 10)));
    let last = head(&bytes[2 * (HEAD + (64 << 10))..]);
    assert_eq!((last.number(36), last.number(40), last.number(20)), (2, 192 << 10, 5));
    assert_eq!(last.flags(), pdu::FINAL);
    assert!(bytes.ends_with(content.at(192 << 10, 64 << 10)));
    iscsi.take(&response(0, 0).0, &mut out, &mut done).unwrap();
    assert_eq!(done, [0]);
}

#[test]
fn commands_wait_for_the_window() {
    let (mut iscsi, mut out, _) = start(3);
    (0..3).for_each(|lane| iscsi.begin(lane, Step::Flush, &mut out));
    assert_eq!(sent(&mut out).len(), 2 * HEAD, "the target takes two");
    let mut done = Vec::new();
    iscsi.take(&response(1, 0).0, &mut out, &mut done).unwrap();
    let third = head(&sent(&mut out));
    assert_eq!((third.number(pdu::CMD_SN), third.number(pdu::EXP_STAT_SN)), (3, 8));
}

#[test]
fn a_ping_is_answered() {
    let (mut iscsi, mut out, _) = start(1);
    let ping = Head::new(pdu::NOP_IN, pdu::FINAL).with(pdu::TASK, pdu::NONE).with(20, 77);
    iscsi.take(&ping.0, &mut out, &mut Vec::new()).unwrap();
    let pong = head(&sent(&mut out));
    assert_eq!((pong.opcode(), pong.number(pdu::TASK), pong.number(20)), (0, pdu::NONE, 77));
}

#[test]
fn errors_and_short_answers_are_not_overlooked() {
    let short = Head::new(pdu::DATA_IN, pdu::FINAL | HAS_STATUS).with_data(0);
    let beyond = Head::new(pdu::DATA_IN, 0).with_data(8192);
    let nobody = response(1, 0);
    for bad in [short, beyond, nobody, response(0, 2), response(0, 0), Head::new(0x3f, 0)] {
        let (mut iscsi, mut out, _) = start(1);
        iscsi.begin(0, Step::Read { offset: 0, len: 4096 }, &mut out);
        assert!(iscsi.take(&bad.0, &mut out, &mut Vec::new()).is_err(), "{bad:?}");
    }
}
