//! Fresh pages of a checkpoint, gathered so that neighbours leave in one write per copy.
use std::sync::Arc;

use block::{Buf, Disk};

use crate::error::CheckpointError;
use crate::format::{PageId, PagePtr, seal_page};
use crate::limits::MAP_PAGE;
use crate::map::Pages;
use crate::pool::{Device, Purpose};
use crate::space::{Alloc, Contradiction, Space, Stream};
use crate::units::Sector;

/// Pages gathered for one write: 128 KiB reaches the device's sequential speed.
const GATHERED_MAX: usize = 32;

pub struct PageWriter {
    pool: u64,
    gathered: Vec<Arc<[u8]>>,
    starts: [Sector; 2],
    /// A first place for which no second one was found yet.
    half: Option<Sector>,
    pub written: u64,
}

pub enum Wrote {
    At(PagePtr),
    /// A space page is being read; try again.
    Wait,
}

impl PageWriter {
    pub fn new(pool: u64) -> PageWriter {
        PageWriter { pool, gathered: Vec::new(), starts: [Sector(0); 2], half: None, written: 0 }
    }

    /// Two places for a page. The reserve makes sure that there are some.
    fn places<D: Disk>(
        &mut self,
        space: &mut Space,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<[Sector; 2]>, CheckpointError> {
        let unit = space.layout.page();
        let mut one = |stream| -> Result<Option<Sector>, CheckpointError> {
            match space.alloc(stream, unit, 1, pages, device)? {
                Alloc::Run(extent) => Ok(Some(extent.start)),
                Alloc::Wait => Ok(None),
                Alloc::Full => Err(Contradiction::Reserve.into()),
            }
        };
        let first = match self.half.take() {
            Some(first) => first,
            None => match one(Stream::PageA)? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        match one(Stream::PageB)? {
            Some(second) => Ok(Some([first, second])),
            None => {
                self.half = Some(first);
                Ok(None)
            }
        }
    }

    /// Gives a page its places and sends it on its way.
    #[expect(clippy::too_many_arguments, reason = "the parts of a pool that a page write touches")]
    pub fn write<D: Disk>(
        &mut self,
        page: &mut Buf,
        owner: u64,
        id: PageId,
        keep: bool,
        space: &mut Space,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Wrote, CheckpointError> {
        let Some(places) = self.places(space, pages, device)? else {
            return Ok(Wrote::Wait);
        };
        seal_page(page, self.pool, owner, id);
        let page: Arc<[u8]> = Arc::from(&page[..]);
        let ptr = PagePtr { places, born: id.born };
        if keep {
            pages.remember(ptr, Arc::clone(&page));
        }
        let run = self.gathered.len() as u64 * space.layout.page();
        let adjoins =
            places[0].0 == self.starts[0].0 + run && places[1].0 == self.starts[1].0 + run;
        if self.gathered.len() == GATHERED_MAX || !adjoins {
            self.send(device, space);
        }
        if self.gathered.is_empty() {
            self.starts = places;
        }
        self.gathered.push(page);
        self.written += 1;
        Ok(Wrote::At(ptr))
    }

    /// Sends what was gathered.
    pub fn send<D: Disk>(&mut self, device: &mut Device<D>, space: &Space) {
        if self.gathered.is_empty() {
            return;
        }
        let mut buf = device.buffer(self.gathered.len() * MAP_PAGE);
        for (part, page) in buf.chunks_exact_mut(MAP_PAGE).zip(&self.gathered) {
            part.copy_from_slice(page);
        }
        self.gathered.clear();
        let data = buf.into_data();
        for place in self.starts {
            device.write(space.layout.offset(place), data.clone(), Purpose::Checkpoint);
        }
    }
}
