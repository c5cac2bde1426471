//! A disk that counts: how large its IOs are, and how far data is written in order of place.
use std::time::Duration;

use block::{Buf, Completion, Disk, Geometry, Io, IoId, Wait};

use crate::contents::is_marked;

/// IOs since counting began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    /// Writes of what the load wrote, and how often one did not begin where the last had ended.
    pub data_writes: u64,
    pub data_bytes: u64,
    pub data_runs: u64,
    /// Journal, pages and superblocks.
    pub own_writes: u64,
    pub own_bytes: u64,
}

impl Counts {
    pub fn kib_per_read(&self) -> f64 {
        per(self.read_bytes, self.reads) / 1024.0
    }

    pub fn kib_per_data_write(&self) -> f64 {
        per(self.data_bytes, self.data_writes) / 1024.0
    }

    pub fn kib_per_run(&self) -> f64 {
        per(self.data_bytes, self.data_runs) / 1024.0
    }

    pub fn writes(&self) -> u64 {
        self.data_writes + self.own_writes
    }

    pub fn add(&mut self, other: Counts) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.data_writes += other.data_writes;
        self.data_bytes += other.data_bytes;
        self.data_runs += other.data_runs;
        self.own_writes += other.own_writes;
        self.own_bytes += other.own_bytes;
    }
}

fn per(what: u64, count: u64) -> f64 {
    what as f64 / count.max(1) as f64
}

pub struct Counted<D> {
    disk: D,
    counts: Counts,
    /// Where the last write of data ended.
    end: Option<u64>,
}

impl<D> Counted<D> {
    pub fn new(disk: D) -> Counted<D> {
        Counted { disk, counts: Counts::default(), end: None }
    }

    /// What was counted until now; counting begins anew.
    pub fn take(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn note(&mut self, io: &Io) {
        let counts = &mut self.counts;
        match io {
            Io::Read { buf, .. } => {
                counts.reads += 1;
                counts.read_bytes += buf.len() as u64;
            }
            Io::Write { at, data } if is_marked(data) => {
                let bytes = data.len() as u64;
                counts.data_writes += 1;
                counts.data_bytes += bytes;
                counts.data_runs += u64::from(self.end != Some(at.0));
                self.end = Some(at.0 + bytes);
            }
            Io::Write { data, .. } => {
                counts.own_writes += 1;
                counts.own_bytes += data.len() as u64;
            }
            Io::Flush | Io::Trim { .. } | Io::Allocate { .. } => {}
        }
    }
}

impl<D: Disk> Disk for Counted<D> {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&mut self, id: IoId, io: Io) {
        self.note(&io);
        self.disk.submit(id, io);
    }

    fn kick(&mut self) {
        self.disk.kick();
    }

    fn complete(&mut self) -> Option<Completion> {
        self.disk.complete()
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        self.disk.lend(capacity)
    }
}

impl<D: Wait> Wait for Counted<D> {
    fn wait(&mut self, at_most: Option<Duration>) {
        self.disk.wait(at_most);
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteOffset, Data};
    use sim::Rng;

    use super::*;
    use crate::contents::Stretch;

    #[test]
    fn a_run_goes_on_where_the_last_write_of_data_ended() {
        let (stretch, mut rng) = (Stretch::new(1, None), Rng::new(2));
        let mut disk = Counted::new(());
        for (at, len) in [(0, 8192), (8192, 4096), (20480, 4096)] {
            let (_, data) = stretch.pick(&mut rng, 4096, len);
            disk.note(&Io::Write { at: ByteOffset(at), data });
            disk.note(&Io::Write { at: ByteOffset(1 << 20), data: Data::copy_of(&[0; 4096]) });
        }
        let counts = disk.take();
        assert_eq!((counts.data_writes, counts.data_runs, counts.own_writes), (3, 2, 3));
        assert_eq!(counts.kib_per_run(), 8.0);
        assert_eq!(disk.take().writes(), 0);
    }
}
