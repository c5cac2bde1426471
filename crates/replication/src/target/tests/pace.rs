//! Who is waited for, and for how long.
use crate::target::tests::served;
use crate::target::tests::stage::{Stage, write};
use crate::words::Span;

/// Blocks of half the backlog of the stage.
const HALF: u64 = (1 << 20) / 2 / 4096;

/// A replica that just moved and then falls behind by half of the backlog, and the first write that
/// is not answered at once.
fn lagging() -> (Stage, u64) {
    let mut stage = served(3);
    stage.ask(1, 10, write(0));
    stage.fake(3).mute = true;
    for block in 0..=HALF {
        stage.ask(1, 100 + block, write(block));
        if stage.answer(100 + block).is_none() {
            assert!(block > HALF / 2, "write {block} waits, though a quorum holds it");
            return (stage, 100 + block);
        }
    }
    panic!("nobody waits for a replica that is half a backlog behind");
}

/// Protects from losing a replica from the stream that is only a little slower than the others.
#[test]
fn new_writes_wait_for_a_replica_that_moves() {
    let (mut stage, waits) = lagging();
    stage.pass(Span::millis(400));
    assert_eq!(stage.answer(waits), None, "the third replica is far behind, but moved");
    let ack = stage.ack_of(3);
    stage.step(ack);
    assert_eq!(stage.answer(waits).as_deref(), Some("ok"));
    assert!(stage.target.status(stage.now).peers.iter().all(|peer| peer.lag.0 < 8192));
}

/// Protects from writers that wait for a replica that hangs (P1).
#[test]
fn a_replica_that_hangs_is_waited_for_once_and_left_behind() {
    let (mut stage, waits) = lagging();
    stage.pass(Span::millis(500));
    assert_eq!(stage.answer(waits).as_deref(), Some("ok"), "it is late, so nobody waits any more");
    for block in 0..HALF / 4 * 3 {
        stage.ask(1, 1000 + block, write(block));
        assert_eq!(stage.answer(1000 + block).as_deref(), Some("ok"), "write {block}");
    }
    stage.pass(Span::millis(50));
    let up = stage.target.status(stage.now).peers[2].up;
    assert!(up < Some(Span::millis(500)), "beyond three quarters its connection ends: {up:?}");

    // It is back, and just as slow.
    stage.fake(3).mute = false;
    stage.ask(1, 2000, write(0));
    stage.fake(3).mute = true;
    for block in 0..=HALF {
        stage.ask(1, 3000 + block, write(block));
        assert_eq!(
            stage.answer(3000 + block).as_deref(),
            Some("ok"),
            "write {block}: once is enough"
        );
    }
}
