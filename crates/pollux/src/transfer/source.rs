//! Where an import comes from: a file or the standard input, read frame by frame.
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use block::ByteLen;
use engine::delta::{Header, Item, Reader, Sums};

use crate::offline::about;

/// Bytes that are asked for at once.
const PIECE: usize = 256 << 10;

pub struct Source {
    from: Box<dyn Read>,
    name: String,
    len: Option<ByteLen>,
    reader: Reader,
    piece: Vec<u8>,
    /// The part of the piece that was not taken yet.
    begin: usize,
    end: usize,
    taken: u64,
}

impl Source {
    pub fn open(path: &Path) -> Result<Source> {
        let (from, name, len): (Box<dyn Read>, _, _) = if path == Path::new("-") {
            ensure!(
                !io::stdin().is_terminal(),
                "there is no delta to read: name a file with --file, or pipe one in"
            );
            (Box::new(io::stdin()), "the standard input".to_owned(), None)
        } else {
            let file = File::open(path).map_err(|error| about(path, error))?;
            let found = file.metadata().map_err(|error| about(path, error))?;
            ensure!(!found.is_dir(), about(path, "is a directory: name the file of a delta"));
            let len = found.is_file().then_some(ByteLen(found.len()));
            (Box::new(file), path.display().to_string(), len)
        };
        let (reader, piece) = (Reader::new(), vec![0; PIECE]);
        Ok(Source { from, name, len, reader, piece, begin: 0, end: 0, taken: 0 })
    }

    /// What the delta is of: its first frame.
    pub fn header(&mut self) -> Result<Header> {
        match self.next()? {
            Some(Item::Header(header)) => Ok(*header),
            other => bail!("{}: a delta begins with its header, not with {other:?}", self.name),
        }
    }

    /// The next frame. `None`: the delta was whole, and nothing follows.
    pub fn next(&mut self) -> Result<Option<Item>> {
        loop {
            let wrong = |error| anyhow!("{}: {error}", self.name);
            if let Some(item) = self.reader.next().map_err(wrong)? {
                return Ok(Some(item));
            }
            if self.begin == self.end {
                let read = self.read().with_context(|| format!("{}: cannot be read", self.name))?;
                if read == 0 {
                    self.sums()?;
                    return Ok(None);
                }
            }
            let rest = self.reader.push(&self.piece[self.begin..self.end]);
            self.taken += (self.end - self.begin - rest.len()) as u64;
            self.begin = self.end - rest.len();
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        loop {
            match self.from.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    (self.begin, self.end) = (0, read);
                    return Ok(read);
                }
            }
        }
    }

    /// What the delta had; an error if it was not whole.
    pub fn sums(&self) -> Result<Sums> {
        self.reader.finish().map_err(|error| anyhow!("{}: {error}", self.name))
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn len(&self) -> Option<ByteLen> {
        self.len
    }
}
