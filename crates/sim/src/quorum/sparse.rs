//! The content of a volume as checkers keep it: pages that were written, and zeros between them. A
//! volume may be far larger than memory, and have many snapshots that share most of their pages.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::in_memory;

pub const PAGE: u64 = PAGE_LEN as u64;

const PAGE_LEN: usize = 4096;

const ZEROS: [u8; PAGE_LEN] = [0; PAGE_LEN];

#[derive(Clone, Debug, Default)]
pub struct Sparse {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE_LEN]>>,
}

impl Sparse {
    pub fn new(size: u64) -> Sparse {
        Sparse { size, pages: BTreeMap::new() }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn resize(&mut self, size: u64) {
        self.size = size;
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = in_memory(at % PAGE);
            let count = (in_memory(PAGE) - within).min(bytes.len() - done);
            let part = &bytes[done..done + count];
            self.write_part(at / PAGE, within, part);
            done += count;
        }
    }

    /// What is written as zeros on nothing stays nothing.
    fn write_part(&mut self, no: u64, within: usize, part: &[u8]) {
        if let Ok(whole) = <&[u8; PAGE_LEN]>::try_from(part) {
            match *whole == ZEROS {
                true => self.pages.remove(&no),
                false => self.pages.insert(no, Arc::new(*whole)),
            };
        } else if self.pages.contains_key(&no) || part != &ZEROS[..part.len()] {
            let page = self.pages.entry(no).or_insert_with(|| Arc::new(ZEROS));
            Arc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
        }
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(no, _)| *no);
        for no in touched.collect::<Vec<u64>>() {
            let (from, to) = ((no * PAGE).max(offset), ((no + 1) * PAGE).min(end));
            if to - from == PAGE {
                self.pages.remove(&no);
            } else if let Some(page) = self.pages.get_mut(&no) {
                let within = in_memory(from - no * PAGE)..in_memory(to - no * PAGE);
                Arc::make_mut(page)[within].fill(0);
            }
        }
    }

    /// Zeros where nothing is, also behind the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; in_memory(len)];
        for (no, page) in self.pages.range(offset / PAGE..(offset + len).div_ceil(PAGE)) {
            let (from, to) = ((no * PAGE).max(offset), ((no + 1) * PAGE).min(offset + len));
            let source = in_memory(from - no * PAGE)..in_memory(to - no * PAGE);
            bytes[in_memory(from - offset)..in_memory(to - offset)].copy_from_slice(&page[source]);
        }
        bytes
    }

    fn page(&self, no: u64) -> &[u8] {
        self.pages.get(&no).map_or(&ZEROS[..], |page| &page[..])
    }

    pub fn has_page(&self, at: u64) -> bool {
        self.pages.contains_key(&(at / PAGE))
    }

    /// Pages that are not all zeros for sure, in order, with where they begin.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(no, page)| (no * PAGE, &page[..]))
    }

    /// The first byte in which the two differ, where it is looked at; behind its end each has zeros.
    pub fn differs(&self, other: &Sparse, looked_at: impl Fn(u64) -> bool) -> Option<u64> {
        let numbers: BTreeSet<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        let differing = numbers.into_iter().filter(|no| self.page(*no) != other.page(*no));
        let mut bytes = differing.flat_map(|no| {
            let pairs = self.page(no).iter().zip(other.page(no)).zip(no * PAGE..);
            pairs.filter(|((a, b), _)| a != b).map(|(_, at)| at).collect::<Vec<u64>>()
        });
        bytes.find(|at| looked_at(*at))
    }
}

impl From<&[u8]> for Sparse {
    fn from(bytes: &[u8]) -> Sparse {
        let mut sparse = Sparse::new(bytes.len() as u64);
        sparse.write(0, bytes);
        sparse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Protects the checkers: what they keep is what an array of bytes would be.
    #[test]
    fn it_is_an_array_of_bytes() {
        let mut rng = Rng::new(1);
        let (mut dense, mut sparse) = (vec![0u8; 64 << 10], Sparse::new(64 << 10));
        for round in 0..2000u64 {
            let at = rng.index(dense.len() / 512) * 512;
            let len = (512 * (1 + rng.index(20))).min(dense.len() - at);
            match rng.below(3) {
                0 => {
                    dense[at..at + len].fill(0);
                    sparse.zero(at as u64, len as u64);
                }
                _ => {
                    let bytes = vec![u8::try_from(round % 3).expect("small"); len];
                    dense[at..at + len].copy_from_slice(&bytes);
                    sparse.write(at as u64, &bytes);
                }
            }
            assert_eq!(sparse.read(at as u64, len as u64), &dense[at..at + len]);
            let mut other = Sparse::from(&dense[..]);
            assert_eq!(sparse.differs(&other, |_| true), None);
            other.write(at as u64, &[9]);
            assert_eq!(other.differs(&sparse, |_| true), Some(at as u64));
        }
    }
}
