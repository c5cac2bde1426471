//! From a stream of bytes to frames of the peer protocol.
//!
//! Head and metadata are small and collected here; the data of a frame lands in one buffer of the
//! pool that will write it. Invariant: no memory is set aside for more than one frame, and a
//! frame's bounds are checked before anything is set aside at all.
use block::{Buf, Data};
use replication::message::{DIVIDES_AFTER, Division, Malformed, division};

#[derive(Debug)]
enum Part {
    /// Head and metadata; how it divides is known once the head is there.
    Front {
        bytes: Vec<u8>,
        divided: Option<Division>,
    },
    Data {
        front: Vec<u8>,
        buf: Buf,
        have: usize,
    },
}

impl Default for Part {
    fn default() -> Part {
        Part::Front { bytes: Vec::new(), divided: None }
    }
}

#[derive(Debug, Default)]
pub struct Frames {
    part: Part,
}

/// A whole frame: head and metadata, and the data behind them.
pub type Frame = (Vec<u8>, Data);

impl Frames {
    /// Takes bytes; `take` gives memory for data.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(usize) -> Buf,
        frames: &mut Vec<Frame>,
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Front { bytes: have, divided } => {
                    let want = divided.map_or(DIVIDES_AFTER, |divided| divided.front);
                    let (now, later) = bytes.split_at(bytes.len().min(want - have.len()));
                    have.extend_from_slice(now);
                    bytes = later;
                    if have.len() == want {
                        self.front_came(take, frames)?;
                    }
                }
                Part::Data { buf, have, .. } => {
                    let (now, later) = bytes.split_at(bytes.len().min(buf.len() - *have));
                    buf[*have..*have + now.len()].copy_from_slice(now);
                    bytes = later;
                    let len = now.len();
                    self.landed(len, frames);
                }
            }
        }
        Ok(())
    }

    fn front_came(
        &mut self,
        take: &mut dyn FnMut(usize) -> Buf,
        frames: &mut Vec<Frame>,
    ) -> Result<(), Malformed> {
        let Part::Front { bytes, divided } = &mut self.part else {
            unreachable!("only a front comes to its end here")
        };
        let Some(Division { data, front }) = *divided else {
            let head = bytes.first_chunk().expect("as many were asked for");
            let found = division(head)?;
            bytes.reserve_exact(found.front - bytes.len());
            *divided = Some(found);
            return Ok(());
        };
        assert_eq!(bytes.len(), front, "a front is collected up to its end");
        let front = std::mem::take(bytes);
        if data == 0 {
            frames.push((front, Data::copy_of(&[])));
            self.part = Part::default();
        } else {
            self.part = Part::Data { front, buf: take(data), have: 0 };
        }
        Ok(())
    }

    /// Where the rest of a frame's data belongs; empty if none is under way.
    pub fn landing(&mut self) -> &mut [u8] {
        match &mut self.part {
            Part::Data { buf, have, .. } => &mut buf[*have..],
            Part::Front { .. } => &mut [],
        }
    }

    /// So many bytes were put into [`Frames::landing`].
    pub fn landed(&mut self, len: usize, frames: &mut Vec<Frame>) {
        let Part::Data { buf, have, .. } = &mut self.part else { return };
        *have += len;
        if *have == buf.len()
            && let Part::Data { front, buf, .. } = std::mem::take(&mut self.part)
        {
            frames.push((front, buf.into_data()));
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteLen, ByteOffset, Seq, Term};
    use replication::entry::{Change, Entry};
    use replication::message::{ForReplica, ToReplica, decode_parts_to_replica, encode_to_replica};
    use replication::words::Moment;

    use super::*;

    fn stream() -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        for number in 1..20_usize {
            let data = Data::copy_of(&vec![7; 512 * number]);
            let change = Change::write(ByteLen(4096), ByteOffset(0), data);
            let entries = ToReplica::Entries(vec![Entry { seq: Seq(1), change }]);
            let renew = ToReplica::Renew { sent: Moment(1), settled: Seq(1) };
            for body in [entries, renew] {
                bytes.extend(encode_to_replica(&ForReplica { term: Term(1), body }).to_bytes());
            }
        }
        (bytes, 38)
    }

    /// Protects from frames that depend on how the network cuts them.
    #[test]
    fn any_cut_gives_the_same_frames() {
        let (bytes, count) = stream();
        for cut in [1, 2, 23, 24, 25, 511, 4096, bytes.len()] {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for (number, part) in bytes.chunks(cut).enumerate() {
                // Now and then as a socket does it that writes into the landing itself.
                let landing = frames.landing();
                let direct = landing.len().min(part.len()) * (number % 2);
                landing[..direct].copy_from_slice(&part[..direct]);
                frames.landed(direct, &mut got);
                frames.receive(&part[direct..], &mut Buf::zeroed, &mut got).unwrap();
            }
            assert_eq!(got.len(), count);
            for (front, data) in got {
                decode_parts_to_replica(&front, data).unwrap();
            }
        }
    }

    #[test]
    fn garbage_ends_the_stream() {
        let mut frames = Frames::default();
        let error = frames.receive(&[0xff; 100], &mut Buf::zeroed, &mut Vec::new()).unwrap_err();
        assert_eq!(error, Malformed::Field { what: "length of a frame" });
    }
}
