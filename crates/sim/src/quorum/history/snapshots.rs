//! What each snapshot of a volume may hold, sector by sector: what was there at one moment or
//! another between asking and answer.
use std::collections::BTreeMap;

use replication::words::SnapshotUid;

use super::stamp::Value;

const ZEROS: [Value; 1] = [Value::ZEROS];

#[derive(Debug)]
struct Snapshot {
    uid: SnapshotUid,
    asked: u64,
    done: Option<u64>,
    /// What is not here holds zeros.
    values: BTreeMap<u64, Vec<Value>>,
}

#[derive(Debug, Default)]
pub struct Snapshots(Vec<Snapshot>);

impl Snapshots {
    /// Asking again for the same one changes nothing: the first asking may be the one that counts.
    pub fn ask(&mut self, now: u64, uid: SnapshotUid) {
        if self.find(uid).is_none() {
            self.0.push(Snapshot { uid, asked: now, done: None, values: BTreeMap::new() });
        }
    }

    pub fn find(&self, uid: SnapshotUid) -> Option<usize> {
        self.0.iter().position(|snapshot| snapshot.uid == uid)
    }

    /// One that is not answered yet, and when it was asked for.
    pub fn open(&self, uid: SnapshotUid) -> Option<(usize, u64)> {
        let index = self.find(uid)?;
        let snapshot = &self.0[index];
        snapshot.done.is_none().then_some((index, snapshot.asked))
    }

    pub fn close(&mut self, index: usize, now: u64) {
        self.0[index].done = Some(now);
    }

    /// Those that may have been made after a moment: from when on, and until when.
    pub fn since(&self, moment: u64) -> Vec<(usize, u64, Option<u64>)> {
        let late = |snapshot: &Snapshot| snapshot.done.is_none_or(|done| done >= moment);
        let all = self.0.iter().enumerate();
        all.filter(|(_, s)| late(s)).map(|(index, s)| (index, s.asked, s.done)).collect()
    }

    /// It may also hold these. False: that was known.
    pub fn add(&mut self, index: usize, held: Vec<(u64, Vec<Value>)>) -> bool {
        let mut news = false;
        let snapshot = &mut self.0[index];
        // Of an answered one, what is not listed holds zeros, and still may.
        let unlisted = if snapshot.done.is_some() { ZEROS.to_vec() } else { Vec::new() };
        for (sector, values) in held {
            let known = snapshot.values.entry(sector).or_insert_with(|| unlisted.clone());
            let before = known.len();
            known.extend(values);
            known.sort_unstable();
            known.dedup();
            news |= known.len() > before;
        }
        news
    }

    pub fn values(&self, index: usize, sector: u64) -> &[Value] {
        self.0[index].values.get(&sector).map_or(&ZEROS, Vec::as_slice)
    }
}
