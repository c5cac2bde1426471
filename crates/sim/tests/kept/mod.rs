//! Images of pools as files: the sectors that were written, compressed.
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use block::{ByteLen, ByteOffset, SectorSize};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sim::Image;
use sim::fixture::Left;

/// Every image of a version: its sectors, how it was left, and the name of its file.
pub fn all() -> [(SectorSize, Left, &'static str); 4] {
    [
        (SectorSize::B512, Left::Closed, "closed-512"),
        (SectorSize::B512, Left::Killed, "killed-512"),
        (SectorSize::B4096, Left::Closed, "closed-4096"),
        (SectorSize::B4096, Left::Killed, "killed-4096"),
    ]
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept")
}

#[allow(dead_code, reason = "used by the example that makes images")]
pub fn save(image: &Image, path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().expect("a file in a folder"))?;
    let mut out = GzEncoder::new(File::create(path)?, Compression::best());
    out.write_all(&image.size().0.to_le_bytes())?;
    out.write_all(&image.physical_sector().bytes().to_le_bytes())?;
    for at in image.written_sectors() {
        out.write_all(&at.0.to_le_bytes())?;
        out.write_all(&image.peek(at, 512))?;
    }
    out.finish().map(|_| ())
}

#[allow(dead_code, reason = "used by the test that opens images")]
pub fn load(path: &Path) -> std::io::Result<Image> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let mut image = Image::new(ByteLen(number(0)), SectorSize::B512);
    image.set_physical_sector(SectorSize::from_bytes(number(8)).expect("512 or 4096"));
    for start in (16..bytes.len()).step_by(520) {
        let at = number(start);
        for (place, byte) in (at..).zip(&bytes[start + 8..start + 520]) {
            image.flip(ByteOffset(place), *byte);
        }
    }
    Ok(image)
}
