//! Delta streams that say what no source says, behind checksums that are right.
use block::{ByteLen, ByteOffset, Position, Seq};
use engine::delta::{Base, Header, Snapshot, Writer};
use engine::{BlockSize, Checksum};

use crate::change::value;
use crate::running::Rng;

const HEAD: usize = 64;
const CHECKSUM_AT: usize = 56;
const PAYLOAD_CHECKSUM_AT: usize = 24;

/// A whole stream, and where its frames begin.
fn stream(rng: &mut Rng) -> (Vec<u8>, Vec<usize>) {
    let base = match rng.below(3) {
        0 => Base::Empty,
        1 => Base::Seq(Seq(7)),
        _ => Base::Snapshot { uid: [1; 16], name: "old".into(), position: Position::new(1, 9) },
    };
    let position = Position::new(1, 20);
    let header = Header {
        volume: [3; 16],
        block_size: BlockSize::new(512 << rng.below(5)).expect("a legal block"),
        size: ByteLen(1 << 20),
        base,
        snapshot: Snapshot { uid: [2; 16], name: "new".into(), position, created_ms: 5 },
        own_sequence: true,
        resume_from: ByteOffset(0),
    };
    let (mut bytes, mut starts) = (Vec::new(), vec![0]);
    let mut writer = Writer::new(&header, &mut bytes).expect("a legal header");
    for range in 0..rng.below(6) {
        starts.push(bytes.len());
        let (offset, changed) = (ByteOffset(range << 16), Seq(range));
        let written = match rng.chance() {
            true => writer.hole(offset, ByteLen(1 << 15), changed, &mut bytes),
            false => writer.bytes(offset, changed, &[0xda; 8192], &mut bytes),
        };
        written.expect("a legal range");
    }
    starts.push(bytes.len());
    writer.finish(&mut bytes);
    (bytes, starts)
}

/// A stream with one to three fields changed and every checksum repaired, and what was changed.
pub fn forged(rng: &mut Rng) -> (Vec<u8>, String) {
    let (mut bytes, starts) = stream(rng);
    let mut changes = Vec::new();
    for _ in 0..=rng.below(3) {
        let frame = rng.index(starts.len());
        let fields = if frame == 0 { starts[1] } else { HEAD };
        let at = starts[frame] + rng.index(fields - 8);
        let width = [1, 2, 4, 8][rng.index(4)];
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[at..at + width]);
        let new = value(rng, u64::from_le_bytes(word)).to_le_bytes();
        bytes[at..at + width].copy_from_slice(&new[..width]);
        changes.push(format!("{width} bytes at {at} of frame {frame} set to {:x?}", &new[..width]));
    }
    repair(&mut bytes, &starts);
    (bytes, changes.join(", "))
}

fn repair(bytes: &mut [u8], starts: &[usize]) {
    let mut heads = Vec::new();
    for (frame, start) in starts.iter().enumerate() {
        let end = starts.get(frame + 1).copied().unwrap_or(bytes.len());
        let (head, payload) = bytes[*start..end].split_at_mut(HEAD);
        let mut put = |at: usize, sum: Checksum| {
            head[at..at + 8].copy_from_slice(&sum.0.to_le_bytes());
        };
        put(PAYLOAD_CHECKSUM_AT, Checksum::of(payload));
        if end == *starts.last().expect("there is an end") + HEAD {
            put(CHECKSUM_AT - 8, Checksum::of(&heads));
        }
        let sum = Checksum::of(&head[..CHECKSUM_AT]);
        head[CHECKSUM_AT..].copy_from_slice(&sum.0.to_le_bytes());
        heads.extend_from_slice(&head[..CHECKSUM_AT]);
    }
}
