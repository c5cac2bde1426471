//! Ports that are free, rather the usual ones.
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// Processes of a site that was killed may still be closing.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Holds every port that it has given away, so that none is given twice.
#[derive(Debug, Default)]
pub struct Ports {
    held: Vec<TcpListener>,
    waited: Duration,
}

impl Ports {
    /// This one, or if somebody has it, any other.
    pub fn take(&mut self, wanted: u16) -> io::Result<SocketAddr> {
        let at = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = at(wanted).or_else(|_| at(0))?;
        let address = listener.local_addr()?;
        self.held.push(listener);
        Ok(address)
    }

    /// The one that it was, for which it is waited a little: others know the site by it.
    pub fn again(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(_) if self.waited + begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => {
                    let text =
                        format!("{address}, where this site is, is somebody else's: {error}");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        };
        self.waited += begun.elapsed();
        let address = listener.local_addr()?;
        self.held.push(listener);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_not_given() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = taken.local_addr().map(|address| (taken, address)).unwrap();
        let mut ports = Ports::default();
        let other = ports.take(taken.1.port()).unwrap();
        assert_ne!(other, taken.1);
        assert_ne!(ports.take(other.port()).unwrap(), other, "it is given already");
        let refused = ports.again(taken.1).unwrap_err().to_string();
        assert!(refused.contains(&taken.1.to_string()), "{refused}");
        drop(ports);
        assert_eq!(Ports::default().again(other).unwrap(), other);
    }
}
