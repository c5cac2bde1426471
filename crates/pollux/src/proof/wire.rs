//! How a writer tells what it does, so that its last words are whole: records of one length, in
//! writes that a pipe takes as one.
use std::io::{self, Read, Write};

use block::Position;
use engine::VolumeId;

use super::step::{Event, Step, StepKind};

pub(super) const RECORD: usize = 40;
/// A pipe takes up to 4096 bytes as a whole or not at all.
const BATCH: usize = 4096 / RECORD;

/// Tells events. When it returns, they outlive this process.
pub(super) fn tell(to: &mut impl Write, events: &[Event]) -> io::Result<()> {
    for batch in events.chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(encode).collect();
        to.write_all(&bytes)?;
    }
    to.flush()
}

/// Hears the next event; `None` at the end. A record that was cut off was never told: its
/// operation was not submitted, or its answer not given.
pub(super) fn hear(from: &mut impl Read) -> io::Result<Option<Event>> {
    let mut bytes = [0; RECORD];
    match from.read_exact(&mut bytes) {
        Ok(()) => decode(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The tag, and five numbers: volume, term, seq (or the number of a flush), first, sectors.
fn encode(event: &Event) -> [u8; RECORD] {
    let at = |volume: VolumeId, at: Position| [volume.0, at.term.0, at.seq.0];
    let (tag, [volume, term, seq], first, sectors) = match *event {
        Event::Issued(Step { kind, volume, position, first, sectors }) => {
            let tag = match kind {
                StepKind::Write => b'W',
                StepKind::Zeroes => b'Z',
                StepKind::Discard => b'D',
            };
            (tag, at(volume, position), first, sectors)
        }
        Event::Acked { volume, position } => (b'A', at(volume, position), 0, 0),
        Event::FlushIssued { number } => (b'f', [0, 0, number], 0, 0),
        Event::Flushed { number } => (b'F', [0, 0, number], 0, 0),
    };
    let mut bytes = [0; RECORD];
    bytes[0] = tag;
    bytes[4..8].copy_from_slice(&sectors.to_le_bytes());
    for (eight, number) in bytes[8..].chunks_exact_mut(8).zip([volume, term, seq, first]) {
        eight.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8; RECORD]) -> io::Result<Event> {
    let number =
        |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight of forty bytes"));
    let sectors = u32::from_le_bytes(bytes[4..8].try_into().expect("four of forty bytes"));
    let (volume, position) = (VolumeId(number(8)), Position::new(number(16), number(24)));
    let step = |kind| Event::Issued(Step { kind, volume, position, first: number(32), sectors });
    Ok(match bytes[0] {
        b'W' => step(StepKind::Write),
        b'Z' => step(StepKind::Zeroes),
        b'D' => step(StepKind::Discard),
        b'A' => Event::Acked { volume, position },
        b'f' => Event::FlushIssued { number: number(24) },
        b'F' => Event::Flushed { number: number(24) },
        tag => {
            let text = format!("the writer said something that is no event (tag {tag})");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from a judge who mishears: then it would look in the wrong place.
    #[test]
    fn what_is_told_is_what_is_heard_and_half_a_record_is_not() {
        let (volume, position) = (VolumeId(7), Position::new(3, 99));
        let step = |kind| Event::Issued(Step { kind, volume, position, first: 5, sectors: 17 });
        let told = [
            step(StepKind::Write),
            step(StepKind::Zeroes),
            step(StepKind::Discard),
            Event::Acked { volume, position },
            Event::FlushIssued { number: 12 },
            Event::Flushed { number: 12 },
        ];
        let mut bytes = Vec::new();
        tell(&mut bytes, &told).unwrap();
        bytes.truncate(bytes.len() - 1);
        let mut from = &bytes[..];
        let heard: Vec<Event> = std::iter::from_fn(|| hear(&mut from).unwrap()).collect();
        assert_eq!(heard, told[..told.len() - 1]);
        assert!(hear(&mut [b'?'; RECORD].as_slice()).is_err());
    }
}
