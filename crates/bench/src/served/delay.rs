//! A wire that is long: what comes on one end leaves by the other so much later, in order, and
//! with as much under way as there is.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

const CHUNK: usize = 256 << 10;

/// Goes on until the process ends; connections end with either of their ends.
pub struct Detour {
    pub at: SocketAddr,
    carried: Arc<AtomicU64>,
}

impl Detour {
    /// Listens, and carries every connection to `to`, with this delay in each direction.
    pub fn to(to: SocketAddr, delay: Duration) -> Result<Detour> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let detour = Detour { at: listener.local_addr()?, carried: Arc::default() };
        let carried = Arc::clone(&detour.carried);
        thread::Builder::new().name("detour".into()).spawn(move || {
            for near in listener.incoming().flatten() {
                // A connection that cannot be made is closed, and its owner tries again.
                let _ = carry(near, to, delay, &carried);
            }
        })?;
        Ok(detour)
    }

    /// Bytes that came, of both directions.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }
}

fn carry(near: TcpStream, to: SocketAddr, delay: Duration, carried: &Arc<AtomicU64>) -> Result<()> {
    let far = TcpStream::connect(to)?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    one_way((near.try_clone()?, far.try_clone()?), delay, Arc::clone(carried))?;
    one_way((far, near), delay, Arc::clone(carried))
}

fn one_way(
    (mut from, mut to): (TcpStream, TcpStream),
    delay: Duration,
    carried: Arc<AtomicU64>,
) -> Result<()> {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::Builder::new().name("detour in".into()).spawn(move || {
        let mut chunk = vec![0; CHUNK];
        while let Ok(came) = from.read(&mut chunk) {
            let is_end = came == 0;
            carried.fetch_add(came as u64, Ordering::Relaxed);
            let sent = sender.send((Instant::now() + delay, chunk[..came].to_vec()));
            if is_end || sent.is_err() {
                break;
            }
        }
    })?;
    thread::Builder::new().name("detour out".into()).spawn(move || {
        for (due, chunk) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&chunk).is_err() {
                break;
            }
        }
        // The other end may be gone already; then there is nothing to close.
        let _ = to.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_both_ways_and_many_are_under_way() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = server.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut echoed = [0; 64];
            while let Ok(came @ 1..) = stream.read(&mut echoed) {
                stream.write_all(&echoed[..came]).unwrap();
            }
        });
        let delay = Duration::from_millis(30);
        let detour = Detour::to(at, delay).unwrap();
        let mut stream = TcpStream::connect(detour.at).unwrap();
        let began = Instant::now();
        for byte in 0..20u8 {
            stream.write_all(&[byte]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let mut answer = [0; 20];
        stream.read_exact(&mut answer).unwrap();
        assert!(began.elapsed() >= 2 * delay, "{:?}", began.elapsed());
        assert!(began.elapsed() < 20 * delay, "{:?}", began.elapsed());
        assert!(answer.iter().copied().eq(0..20));
        assert_eq!(detour.carried(), 40);
    }
}
