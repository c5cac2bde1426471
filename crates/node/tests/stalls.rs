//! A process that is stopped in the middle of a turn (P5): by SIGSTOP, by a throttled container, by
//! a hypervisor that has no time for it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod nbd;
mod site;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nbd::Nbd;
use node::clock::{Clock, now};
use replication::words::NodeId;
use site::Site;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Stops the thread that asks for the time, after that was read and before it is used.
#[derive(Default)]
struct Stall {
    /// How many questions from now; 0: none.
    at: AtomicUsize,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stall {
    fn clock(self: &Arc<Stall>) -> Clock {
        let stall = Arc::clone(self);
        Clock::new(move || {
            let read = now();
            let counted = |at: usize| at.checked_sub(1);
            let was = stall.at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted);
            if was == Ok(1) {
                let mut stopped = stall.stopped.lock().unwrap();
                *stopped = true;
                stall.changed.notify_all();
                while *stopped {
                    stopped = stall.changed.wait(stopped).unwrap();
                }
            }
            read
        })
    }

    fn wait_stopped(&self) {
        let stopped = self.stopped.lock().unwrap();
        let limit = Duration::from_secs(10);
        let (stopped, _) = self.changed.wait_timeout_while(stopped, limit, |it| !*it).unwrap();
        assert!(*stopped, "the node does not ask for the time");
    }

    fn go_on(&self) {
        *self.stopped.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

/// In memory: there a read of a pool is done within the turn in which it was asked for. On a
/// device the turn would end before, and the next one looks at the clock again.
fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from("/dev/shm").join(format!("pollux-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A client that sends its read in two parts: the first wakes the node.
struct Spy(TcpStream);

impl Spy {
    fn open(at: SocketAddr, name: &str) -> Spy {
        Spy(Nbd::open(at, name).into_stream())
    }

    fn request() -> Vec<u8> {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(&7_u64.to_be_bytes());
        request.extend_from_slice(&0_u64.to_be_bytes());
        request.extend_from_slice(&u32::try_from(BLOCK).unwrap().to_be_bytes());
        request
    }

    /// The first of the bytes that were read, if the target answered at all.
    fn answer(&mut self) -> Option<u8> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).ok()?;
        if reply[4..8] != [0; 4] {
            return None;
        }
        let mut data = vec![0; BLOCK];
        self.0.read_exact(&mut data).ok()?;
        Some(data[0])
    }
}

/// The old target stops right after it has looked at its clock. Meanwhile another one takes over
/// and acknowledges a newer write. Then a client asks the old target: the answer must not be what
/// its lease covered before it was stopped. At which of its looks the process stops is not known,
/// so each of the first few is tried, with a volume of its own.
#[test]
fn a_target_that_was_stopped_in_a_turn_does_not_answer_under_its_old_lease() {
    let dir = dir("stalls");
    let stall = Arc::new(Stall::default());
    let mut site = Site::new(&dir);
    site.clocks.insert(NodeId(1), stall.clock());
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    for (at, name) in ["a", "bb", "ccc"].into_iter().enumerate() {
        let volume = site.create(name, 16 * MIB, &[1, 2, 3]);
        site.serve(volume, 1);
        let old = site.nodes[&NodeId(1)].nbd;
        Nbd::open(old, name).write(0, &[1; BLOCK]);
        let mut spy = Spy::open(old, name);
        let request = Spy::request();

        stall.at.store(at + 1, Ordering::SeqCst);
        spy.0.write_all(&request[..4]).unwrap();
        stall.wait_stopped();
        site.serve(volume, 2);
        let mut successor = Nbd::open(site.nodes[&NodeId(2)].nbd, name);
        successor.write(0, &[2; BLOCK]);
        spy.0.write_all(&request[4..]).unwrap();
        stall.go_on();

        assert_ne!(spy.answer(), Some(1), "a read after the newer write has the older one");
    }
    (1..=3).for_each(|id| site.stop(id));
    std::fs::remove_dir_all(&dir).unwrap();
}
