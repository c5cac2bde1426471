//! Pages in memory: a cache of fixed size, and the reads that fill it.
//!
//! A page of one birth never changes at its place, so the cache holds only clean pages, keyed by
//! place and birth, and dropping one is always right.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use block::{Buf, Disk};

use crate::format::{PageId, PageProblem, PagePtr, verify_page};
use crate::limits::MAP_PAGE;
use crate::pool::{Device, Purpose, ReadKey};
use crate::units::{Birth, Sector};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    place: Sector,
    born: Birth,
}

impl From<PagePtr> for PageKey {
    fn from(ptr: PagePtr) -> PageKey {
        PageKey { place: ptr.places[0], born: ptr.born }
    }
}

/// Who goes on when a page arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    Read(ReadKey),
    /// Checkpoint and allocation: they look again at every turn.
    Pump,
}

pub enum Got {
    Page(Arc<[u8]>),
    /// It is being read.
    Wait,
    /// Both copies are bad.
    Bad(PageProblem),
}

struct Loading {
    ptr: PagePtr,
    id: PageId,
    copy: usize,
    waiters: Vec<ReadKey>,
    /// Checkpoint or allocation wait as well.
    pump: bool,
}

struct Cached {
    key: PageKey,
    page: Arc<[u8]>,
    /// Used since the hand last passed.
    hot: bool,
}

/// Keys are places on a device: multiplying spreads them well enough, and is much cheaper than a
/// hash that withstands an adversary.
#[derive(Default)]
pub struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type PlaceMap<V> = HashMap<PageKey, V, BuildHasherDefault<PlaceHasher>>;

pub struct Pages {
    pool: u64,
    cached: Vec<Cached>,
    index: PlaceMap<usize>,
    hand: usize,
    max: usize,
    loading: PlaceMap<Loading>,
    /// Pages that checkpoint or allocation waited for. They are kept until asked for again: a
    /// small cache may have dropped them by then, and nobody would ever get on.
    delivered: PlaceMap<Arc<[u8]>>,
    bad: PlaceMap<PageProblem>,
    pub reads: u64,
    /// Pages whose first copy was bad and whose second one answered.
    pub second_copies: u64,
}

impl Pages {
    pub fn new(pool: u64, max: usize) -> Pages {
        Pages {
            pool,
            cached: Vec::new(),
            index: PlaceMap::default(),
            hand: 0,
            max: max.max(16),
            loading: PlaceMap::default(),
            delivered: PlaceMap::default(),
            bad: PlaceMap::default(),
            reads: 0,
            second_copies: 0,
        }
    }

    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    pub fn want<D: Disk>(
        &mut self,
        ptr: PagePtr,
        id: PageId,
        waiter: Waiter,
        device: &mut Device<D>,
    ) -> Got {
        let key = PageKey::from(ptr);
        if waiter == Waiter::Pump
            && let Some(page) = self.delivered.remove(&key)
        {
            return Got::Page(page);
        }
        if let Some(&at) = self.index.get(&key) {
            self.cached[at].hot = true;
            return Got::Page(Arc::clone(&self.cached[at].page));
        }
        if let Some(problem) = self.bad.get(&key) {
            return Got::Bad(*problem);
        }
        let loading = self.load(key, ptr, id, device);
        match waiter {
            Waiter::Read(read) => loading.waiters.push(read),
            Waiter::Pump => loading.pump = true,
        }
        Got::Wait
    }

    fn load<D: Disk>(
        &mut self,
        key: PageKey,
        ptr: PagePtr,
        id: PageId,
        device: &mut Device<D>,
    ) -> &mut Loading {
        match self.loading.entry(key) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                device.read_sectors(ptr.places[0], MAP_PAGE, Purpose::Page(key));
                free.insert(Loading { ptr, id, copy: 0, waiters: Vec::new(), pump: false })
            }
        }
    }

    /// Starts reading a page that will be wanted soon.
    pub fn prefetch<D: Disk>(&mut self, ptr: PagePtr, id: PageId, device: &mut Device<D>) {
        // Reading ahead more than the cache holds would throw out what was read first.
        let key = PageKey::from(ptr);
        let known = self.index.contains_key(&key) || self.bad.contains_key(&key);
        if !known && self.loading.len() < self.max / 4 {
            self.load(key, ptr, id, device);
        }
    }

    /// Forgets pages that were waited for and then not wanted after all.
    pub fn drop_delivered(&mut self) {
        self.delivered.clear();
    }

    /// A read of a page came back. Returns who waited for it, with the page, if it is settled.
    pub fn arrived<D: Disk>(
        &mut self,
        key: PageKey,
        read: Option<Buf>,
        device: &mut Device<D>,
    ) -> (Vec<ReadKey>, Option<Arc<[u8]>>) {
        let loading = self.loading.get_mut(&key).expect("a page that is being read");
        self.reads += 1;
        let verdict = match &read {
            Some(bytes) => verify_page(bytes, self.pool, loading.id),
            None => Err(PageProblem::Unreadable),
        };
        match (verdict, read) {
            (Ok(()), Some(page)) => {
                self.second_copies += loading.copy as u64;
                // Cached pages need no alignment, which would double the memory that they take.
                let bytes: Arc<[u8]> = Arc::from(&page[..]);
                device.bufs.give(page);
                let page = bytes;
                self.insert(key, Arc::clone(&page));
                let loading = self.loading.remove(&key).expect("looked up above");
                if loading.pump {
                    self.delivered.insert(key, Arc::clone(&page));
                }
                return (loading.waiters, Some(page));
            }
            (Err(_), _) if loading.copy == 0 => {
                loading.copy = 1;
                device.read_sectors(loading.ptr.places[1], MAP_PAGE, Purpose::Page(key));
                return (Vec::new(), None);
            }
            (verdict, _) => {
                // A bound, not a policy: damage is rare and the verdict can be found again.
                if self.bad.len() > 1024 {
                    self.bad.clear();
                }
                self.bad.insert(key, verdict.err().unwrap_or(PageProblem::Unreadable));
            }
        }
        (self.loading.remove(&key).expect("looked up above").waiters, None)
    }

    /// Keeps a page that was just made.
    pub fn remember(&mut self, ptr: PagePtr, page: Arc<[u8]>) {
        self.insert(PageKey::from(ptr), page);
    }

    /// Keeps a page that was just made until the checkpoint asks for it, whatever the cache drops:
    /// it may not have been sent yet, so it cannot be read.
    pub fn hold(&mut self, ptr: PagePtr, page: &[u8]) {
        self.delivered.insert(PageKey::from(ptr), Arc::from(page));
    }

    fn insert(&mut self, key: PageKey, page: Arc<[u8]>) {
        if let Some(&at) = self.index.get(&key) {
            self.cached[at].page = page;
            return;
        }
        if self.cached.len() < self.max {
            self.index.insert(key, self.cached.len());
            self.cached.push(Cached { key, page, hot: false });
            return;
        }
        while std::mem::take(&mut self.cached[self.hand].hot) {
            self.hand = (self.hand + 1) % self.max;
        }
        let at = self.hand;
        self.hand = (at + 1) % self.max;
        self.index.remove(&self.cached[at].key);
        self.index.insert(key, at);
        self.cached[at] = Cached { key, page, hot: false };
    }
}
