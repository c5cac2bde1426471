//! Writes that bring their checksums along: what is kept is what was checked.
//!
//! A wrong checksum shows what becomes of it: where it is kept, the bytes are found to be damaged
//! when they are read, as if they had changed in memory behind the check.
mod hand;

use std::sync::Arc;

use block::{ByteLen, ByteOffset, Data};
use engine::{
    BlockSize, Checksum, Compression, GranuleSums, Op, OpError, Reply, VolumeId, VolumeSpec,
};
use hand::{GRANULE, Hand};

const POOL: u64 = 16 << 20;
const WRONG: u64 = 0xdead;

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251 + 1).expect("small")).collect()
}

fn write(hand: &mut Hand, volume: VolumeId, offset: u64, len: u64, granule: u64, sums: &[u64]) {
    let (position, offset) = (hand.place(volume), ByteOffset(offset));
    let sums = match sums {
        [only] => GranuleSums::One(*only),
        _ => GranuleSums::Many(Arc::from(sums)),
    };
    let (data, granule) = (Data::copy_of(&bytes(len)), ByteLen(granule));
    hand.run(Op::WriteChecked { volume, position, offset, data, granule, sums });
}

/// Where damage is found, if it is; otherwise the bytes are compared.
fn damaged_at(hand: &mut Hand, volume: VolumeId, offset: u64, len: u64) -> Option<u64> {
    let op = Op::Read { volume, offset: ByteOffset(offset), len: ByteLen(len) };
    match hand.pool.run(op) {
        Ok(Reply::Read(data)) => {
            assert_eq!(data[..], bytes(len));
            None
        }
        Err(OpError::Damaged { offset, .. }) => Some(offset.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_checksum_of_a_whole_granule_is_kept_as_it_came() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(1024);
    let data = bytes(3 * GRANULE);
    let granules = data.chunks(usize::try_from(GRANULE).expect("small"));
    let right: Vec<u64> = granules.map(|granule| Checksum::of(granule).0).collect();
    let wrong = [right[0], WRONG, right[2]];
    write(&mut hand, volume, 0, 3 * GRANULE, GRANULE, &right);
    write(&mut hand, volume, 10 * GRANULE, 3 * GRANULE, GRANULE, &wrong);
    write(&mut hand, volume, 20 * GRANULE, GRANULE, GRANULE, &[WRONG]);
    for when in ["in the journal", "in the map"] {
        assert_eq!(damaged_at(&mut hand, volume, 0, 3 * GRANULE), None, "{when}");
        let found = damaged_at(&mut hand, volume, 10 * GRANULE, 3 * GRANULE);
        assert_eq!(found, Some(11 * GRANULE), "{when}");
        let found = damaged_at(&mut hand, volume, 20 * GRANULE, GRANULE);
        assert_eq!(found, Some(20 * GRANULE), "{when}");
        hand.settle();
    }
}

/// A write that is so large that its bytes leave before its checksums would have been computed.
#[test]
fn so_are_those_of_a_large_write() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(1024);
    let data = bytes(256 * GRANULE);
    let granules = data.chunks(usize::try_from(GRANULE).expect("small"));
    let mut sums: Vec<u64> = granules.map(|granule| Checksum::of(granule).0).collect();
    write(&mut hand, volume, 0, 256 * GRANULE, GRANULE, &sums);
    assert_eq!(damaged_at(&mut hand, volume, 0, 256 * GRANULE), None);
    sums[77] = WRONG;
    write(&mut hand, volume, 0, 256 * GRANULE, GRANULE, &sums);
    assert_eq!(damaged_at(&mut hand, volume, 0, 256 * GRANULE), Some(77 * GRANULE));
}

/// What is stored there is not what they are of.
#[test]
fn those_of_heads_and_tails_and_of_another_division_are_not() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(1024);
    let middle = Checksum::of(&bytes(GRANULE + 1024)[512..4608]).0;
    write(&mut hand, volume, GRANULE - 512, GRANULE + 1024, GRANULE, &[WRONG, middle, WRONG]);
    assert_eq!(damaged_at(&mut hand, volume, GRANULE - 512, GRANULE + 1024), None);
    write(&mut hand, volume, 8 * GRANULE, 2 * GRANULE, 8192, &[WRONG]);
    assert_eq!(damaged_at(&mut hand, volume, 8 * GRANULE, 2 * GRANULE), None);
    write(&mut hand, volume, 8 * GRANULE, 2 * GRANULE, GRANULE, &[WRONG; 3]);
    assert_eq!(damaged_at(&mut hand, volume, 8 * GRANULE, 2 * GRANULE), None);
}

#[test]
fn nor_are_those_of_what_is_compressed() {
    let mut hand = Hand::new(POOL);
    let spec = VolumeSpec {
        name: "compressed".into(),
        size: ByteLen(1 << 20),
        block_size: BlockSize::new(16384).expect("a legal block"),
        compression: "lz4".parse::<Compression>().expect("a known name"),
        ..VolumeSpec::default()
    };
    let Reply::Created(volume) = hand.run(Op::Create { spec }) else { panic!("it is created") };
    write(&mut hand, volume, 0, 16384, 16384, &[WRONG]);
    assert_eq!(damaged_at(&mut hand, volume, 0, 16384), None);
}
