//! The kernel's client of NBD, at one end of a socket whose other end is here.
//!
//! The kernel is not given the target's own connection: a client whose connection ends fails what was under way,
//! and it is this process that knows where the target is now, and how to say who comes. So the kernel speaks to
//! this process, and [`Link`] goes through lost connections and moved targets as for every other way.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{ByteLen, ByteOffset};
use frontend::nbd::wire::{
    REQUEST_LEN, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, command, transmission_flag, u16_at, u32_at,
    u64_at,
};
use tracing::{info, warn};

use super::{Attached, WayError, linked, tell_device, unused};
use crate::calls::{self, NbdDisk};
use crate::link::{Failure, Link, Plan, Work};
use crate::orders::Health;
use crate::record::{Folder, Record};

/// The kernel sends no larger ones: its limit for a request.
const PAYLOAD_MAX: u32 = 32 << 20;
/// Number of "this request makes no sense".
const INVALID: u32 = 22;
/// The kernel shows a new device within moments.
const SHOWN_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct Attachment {
    link: Arc<Link>,
    folder: Folder,
    device: PathBuf,
    block: ByteLen,
    /// The kernel's side, and ours.
    threads: Vec<JoinHandle<()>>,
}

impl Attachment {
    pub fn open(record: &Record, folder: &Folder, plan: Plan) -> Result<Attachment, WayError> {
        let link = Arc::new(Link::open(plan, linked::REACH_MAX)?);
        let of_link = link.disk();
        let mut flags = transmission_flag::HAS_FLAGS
            | transmission_flag::SEND_FLUSH
            | transmission_flag::SEND_TRIM
            | transmission_flag::SEND_WRITE_ZEROES;
        if record.read_only || of_link.read_only {
            flags |= transmission_flag::READ_ONLY;
        }
        let disk = NbdDisk { size: of_link.size, block: of_link.block, flags };
        let failed = |error| WayError::System { what: "the kernel's client of NBD", error };
        let (ours, kernels) = UnixStream::pair().map_err(failed)?;
        let (device, file) = take_device(&kernels, &disk, &taken(folder))?;
        let serving = Arc::clone(&link);
        let threads = vec![
            thread::spawn(move || {
                let ran = calls::run_nbd(&file);
                info!(?ran, "the kernel has let go of the device");
                // The other end is closed only now: the kernel has a reference of its own.
                drop(kernels);
            }),
            thread::spawn(move || {
                let ended = serve(&ours, &serving);
                info!(?ended, "the kernel asks no more");
            }),
        ];
        let (folder_of, block) = (folder.clone(), disk.block);
        let attachment = Attachment { link, folder: folder_of, device, block, threads };
        attachment.await_size(disk.size).map_err(failed)?;
        tell_device(folder, &attachment.device).map_err(failed)?;
        Ok(attachment)
    }

    /// A device whose size is not there yet looks empty to whoever opens it.
    fn await_size(&self, size: ByteLen) -> io::Result<()> {
        let begun = Instant::now();
        let name = self.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let connected = PathBuf::from(format!("/sys/block/{name}/pid"));
        loop {
            let sectors = fs::read_to_string(format!("/sys/block/{name}/size"))?;
            if connected.exists() && sectors.trim().parse() == Ok(size.0 / 512) {
                return Ok(());
            }
            if begun.elapsed() > SHOWN_MAX {
                return Err(io::Error::other(format!("{name} does not become {} bytes", size.0)));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// What other attachments of this machine have, or had: who has a dead one open must not find another volume there.
fn taken(folder: &Folder) -> Vec<PathBuf> {
    let others = folder.0.parent().and_then(|state| fs::read_dir(state).ok());
    let others = others.into_iter().flatten().flatten().map(|entry| Folder(entry.path()));
    others.filter(|other| other != folder).flat_map(|other| super::devices(&other)).collect()
}

/// The first device that nobody has.
fn take_device(
    socket: &UnixStream,
    disk: &NbdDisk,
    taken: &[PathBuf],
) -> Result<(PathBuf, File), WayError> {
    let failed = |error| WayError::System { what: "the kernel's client of NBD", error };
    let mut last = io::Error::other("there is no device /dev/nbd*: load its module with more");
    for number in 0.. {
        let path = PathBuf::from(format!("/dev/nbd{number}"));
        if !path.exists() {
            break;
        }
        if Path::new(&format!("/sys/block/nbd{number}/pid")).exists() || taken.contains(&path) {
            continue;
        }
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        match opened.and_then(|file| calls::configure_nbd(&file, socket, disk).map(|()| file)) {
            Ok(file) => return Ok((path, file)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// What the kernel asks, until it ends.
fn serve(kernel: &UnixStream, link: &Arc<Link>) -> io::Result<()> {
    let replies = Arc::new(Mutex::new(kernel.try_clone()?));
    let mut requests = io::BufReader::with_capacity(256 << 10, kernel);
    loop {
        let mut head = [0; REQUEST_LEN];
        requests.read_exact(&mut head)?;
        if u32_at(&head, 0) != REQUEST_MAGIC {
            return Err(io::Error::other("the kernel does not speak NBD"));
        }
        let (kind, cookie) = (u16_at(&head, 6), u64_at(&head, 8));
        let (at, len) = (ByteOffset(u64_at(&head, 16)), u32_at(&head, 24));
        let range = ByteLen(len.into());
        let work = match kind {
            command::READ if len <= PAYLOAD_MAX => Work::Read { at, len: range },
            command::WRITE if len <= PAYLOAD_MAX => {
                let mut data = vec![0; usize::try_from(len).unwrap_or(0)];
                requests.read_exact(&mut data)?;
                Work::Write { at, data }
            }
            command::FLUSH => Work::Flush,
            command::TRIM => Work::Discard { at, len: range },
            command::WRITE_ZEROES => Work::Zero { at, len: range },
            command::DISC => return Ok(()),
            _ => {
                reply(&replies, cookie, Err(INVALID));
                continue;
            }
        };
        let replies = Arc::clone(&replies);
        let answer = move |result: Result<&[u8], Failure>| {
            let number = |failure: Failure| failure.errno().unsigned_abs();
            reply(&replies, cookie, result.map_err(number));
        };
        link.submit(work, Box::new(answer));
    }
}

fn reply(to: &Mutex<UnixStream>, cookie: u64, result: Result<&[u8], u32>) {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&result.err().unwrap_or(0).to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    let written = to.write_all(&head).and_then(|()| to.write_all(result.unwrap_or(&[])));
    if let Err(error) = written {
        warn!(%error, "the kernel did not take an answer");
    }
}

impl Attached for Attachment {
    fn device(&self) -> &Path {
        &self.device
    }

    fn size(&self) -> u64 {
        self.link.disk().size.0
    }

    fn health(&self) -> Health {
        match self.threads.iter().any(JoinHandle::is_finished) {
            true => Health::Ended { reason: "the kernel has let go of the device".into() },
            false => linked::health(&self.link),
        }
    }

    fn failed_writes(&self) -> Option<u64> {
        Some(self.link.failed_writes())
    }

    fn resize(&mut self) -> Result<(), WayError> {
        let disk = self.link.refresh()?;
        let failed = |error| WayError::System { what: "the kernel's client of NBD", error };
        let file = OpenOptions::new().read(true).write(true).open(&self.device).map_err(failed)?;
        calls::resize_nbd(&file, disk.size, self.block).map_err(failed)
    }

    fn close(&mut self) -> Result<(), WayError> {
        let failed = |error| WayError::System { what: "the volume's device", error };
        // If the kernel has let go of it already, its number may be somebody else's.
        if !self.threads.iter().any(JoinHandle::is_finished) {
            let file = unused(&self.device)?;
            linked::write_back(&self.link, &self.folder, &self.device, true)?;
            calls::disconnect_nbd(&file).map_err(failed)?;
        }
        for thread in self.threads.drain(..) {
            // One that panicked has said so; the device is gone either way.
            let _ = thread.join();
        }
        self.link.stop();
        Ok(())
    }

    fn abandon(&mut self) {
        self.link.stop();
    }
}
