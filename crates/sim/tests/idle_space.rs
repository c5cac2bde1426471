//! Space that was given back to a pool in which nobody does anything any more.
mod hand;

use hand::Hand;

const GRANULES: u64 = 1024;
const GRANULE: u64 = 4096;

/// What a node does once in a while with a pool that has nothing to do.
fn rest(hand: &mut Hand) {
    for _ in 0..8 {
        hand.pool.idle();
        // As many as all IO of a checkpoint here, one after the other.
        (0..1000).for_each(|_| hand.pool.wait());
    }
}

/// Protects from discarded space that nobody can use until somebody writes a lot.
#[test]
fn what_was_discarded_comes_back_without_another_write() {
    let mut hand = Hand::new(64 << 20);
    let volume = hand.create(GRANULES);
    (0..GRANULES).for_each(|granule| hand.write(volume, granule, granule + 1));
    hand.pool.checkpoint().expect("a healthy disk");
    let before = hand.pool.info().free.0;
    hand.discard(volume, 0, GRANULES);
    assert!(hand.pool.info().free.0 <= before, "nothing comes back before a checkpoint");
    rest(&mut hand);
    let gained = hand.pool.info().free.0.saturating_sub(before);
    assert!(gained * 10 >= GRANULES * GRANULE * 9, "{gained} bytes came back");
    hand.checked();
}

/// Protects from a pool that writes checkpoint after checkpoint because each replaces something.
#[test]
fn a_pool_that_rests_comes_to_rest() {
    let mut hand = Hand::new(64 << 20);
    let volume = hand.create(GRANULES);
    (0..GRANULES).for_each(|granule| hand.write(volume, granule, granule + 1));
    hand.discard(volume, 0, GRANULES);
    rest(&mut hand);
    let before = hand.pool.counters().checkpoints;
    rest(&mut hand);
    assert_eq!(hand.pool.counters().checkpoints, before);
}
