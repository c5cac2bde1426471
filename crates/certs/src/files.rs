//! Folders of certificates and keys: whole or not there at all, and never overwritten.
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::errors::{LoadError, WriteError};

/// The names that secrets with certificates have in Kubernetes too.
pub const CA_CERTIFICATE: &str = "ca.crt";
pub const CA_KEY: &str = "ca.key";
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";

/// A few chains of certificates; the largest key is far below.
const LEN_MAX: u64 = 256 << 10;

const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const FOLDER: u32 = 0o700;

pub enum Content<'a> {
    Certificate(&'a str),
    Key(&'a str),
}

/// Writes a folder that does not exist yet.
pub fn write_folder(path: &Path, files: &[(&str, Content<'_>)]) -> Result<(), WriteError> {
    let io = |error: io::Error| WriteError::Io { path: path.into(), error };
    let parent = parent(path);
    DirBuilder::new().recursive(true).mode(FOLDER).create(parent).map_err(io)?;
    if path.symlink_metadata().is_ok() {
        return Err(WriteError::Exists { path: path.into() });
    }
    let new = aside(path);
    let written = fill(&new, files).and_then(|()| fs::rename(&new, path));
    match written {
        Ok(()) => sync(parent).map_err(io),
        Err(error) => {
            // What was begun is of no use to anybody; that it may stay changes nothing.
            let _ = fs::remove_dir_all(&new);
            match error.kind() {
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
                    Err(WriteError::Exists { path: path.into() })
                }
                _ => Err(io(error)),
            }
        }
    }
}

fn fill(folder: &Path, files: &[(&str, Content<'_>)]) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(folder)?;
    for (name, content) in files {
        let (text, mode) = match content {
            Content::Certificate(text) => (text, PUBLIC),
            Content::Key(text) => (text, SECRET),
        };
        let path = folder.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    sync(folder)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name beside the one that is meant, of this process alone.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parent(path).join(format!(".{name}.new-{}", std::process::id()))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub fn certificates(
    path: &Path,
    advice: &'static str,
) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let bytes = read(path, advice)?;
    let not_pem = || LoadError::NotPem { path: path.into(), what: "certificate" };
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|_| not_pem())?;
    if found.is_empty() {
        return Err(not_pem());
    }
    Ok(found)
}

/// The text of a key that nobody else can read.
pub fn key_text(path: &Path, advice: &'static str) -> Result<Vec<u8>, LoadError> {
    let bytes = read(path, advice)?;
    let metadata =
        fs::metadata(path).map_err(|error| LoadError::Io { path: path.into(), error })?;
    let mode = metadata.permissions().mode() & 0o777;
    match mode & !0o700 {
        0 => Ok(bytes),
        _ => Err(LoadError::Exposed { path: path.into(), mode }),
    }
}

pub fn key(path: &Path, advice: &'static str) -> Result<PrivateKeyDer<'static>, LoadError> {
    let bytes = key_text(path, advice)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| LoadError::NotPem { path: path.into(), what: "private key" })
}

fn read(path: &Path, advice: &'static str) -> Result<Vec<u8>, LoadError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => LoadError::Missing { path: path.into(), advice },
        _ => LoadError::Io { path: path.into(), error },
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LEN_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match u64::try_from(bytes.len()) {
        Ok(len) if len <= LEN_MAX => Ok(bytes),
        _ => Err(LoadError::TooLarge { path: path.into(), max: LEN_MAX }),
    }
}
