//! Connections that say nothing, one of a kind and hundreds at a time.
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::nbd::Nbd;
use rig::operator::Operator;
use rig::site::Rig;

use crate::initiator::Initiator;
use crate::{VOLUME, connect, is_logged, until_closed};

/// To each port; more than a node lets in of those who have proved nothing.
const CROWD: usize = 600;

/// The longest time that anybody has to say who it is: initiators, in their login.
const DEADLINE: Duration = Duration::from_secs(15);

pub struct Silent {
    since: Instant,
    streams: Vec<(&'static str, TcpStream)>,
}

fn doors(rig: &Rig) -> [SocketAddr; 4] {
    [rig.nbd(1), rig.iscsi(1), rig.peers(1), rig.admin(1)]
}

impl Silent {
    /// Connect and say nothing, or half of the first word.
    pub fn of_all_kinds(rig: &Rig) -> Result<Silent> {
        let silent = Silent { since: Instant::now(), streams: Vec::new() };
        // What is too long is skipped, so that a client may ask for something else; but not for ever.
        let long = b"\0\0\0\x03IHAVEOPT\0\0\0\x03\xff\xff\xff\xff and some of it";
        silent.and(&[
            ("iSCSI", rig.iscsi(1), b""),
            ("half an initiator", rig.iscsi(1), &[0x43, 0x87, 0, 0]),
            ("an option of 4 GiB", rig.nbd(1), long),
            ("NBD", rig.nbd(1), b""),
            ("half an NBD client", rig.nbd(1), &[0, 0, 0, 3, b'I', b'H']),
            ("a peer", rig.peers(1), b""),
            ("half a peer", rig.peers(1), b"PLXC\x01\0\0"),
            ("admin", rig.admin(1), b""),
            ("half an administrator", rig.admin(1), b"PRI * HTTP/2.0"),
        ])
    }

    fn and(mut self, kinds: &[(&'static str, SocketAddr, &[u8])]) -> Result<Silent> {
        for (what, at, bytes) in kinds {
            let mut stream = connect(*at)?;
            stream.write_all(bytes)?;
            self.streams.push((what, stream));
        }
        Ok(self)
    }

    /// Each within its time, with a line in the log.
    pub fn are_closed(self, rig: &mut Rig) -> Result<()> {
        for (what, stream) in &self.streams {
            let left = (DEADLINE + Duration::from_secs(2)).saturating_sub(self.since.elapsed());
            stream.set_read_timeout(Some(left.max(Duration::from_millis(100))))?;
            until_closed(stream).with_context(|| format!("{what} that is silent"))?;
        }
        println!("all that were silent are closed after {:.1?}", self.since.elapsed());
        is_logged(rig, "a silent client", &["an NBD client is refused", "took too long"])?;
        is_logged(rig, "a silent peer", &["a peer is refused", "took too long"])?;
        is_logged(rig, "a silent initiator", &["an iSCSI connection", "not finished in time"])?;
        is_logged(rig, "a silent administrator", &["an administrator is refused", "took more than"])
    }
}

/// The same clients, again and again: the log is told of them, and not filled.
pub fn restless(rig: &mut Rig) -> Result<()> {
    for _ in 0..50 {
        Nbd::connect(rig.nbd(1), VOLUME, Box::new(|| true))?;
        Initiator::logged_in(rig, VOLUME, &[])?;
    }
    let log = std::fs::read_to_string(rig.node(1).log())?;
    for who in ["an NBD client logs in", "an iSCSI initiator logs in"] {
        let lines = log.lines().filter(|line| line.contains(who)).count();
        ensure!((1..10).contains(&lines), "{who}: {lines} lines");
    }
    Ok(())
}

/// Hundreds at every door; others are served all the same.
pub fn flood(rig: &mut Rig, operator: &Operator) -> Result<()> {
    // The operator's last connections are closed with its next question.
    operator.target(VOLUME)?;
    let before = rig.node(1).descriptors()?;
    let begun = Instant::now();
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        for door in doors(rig) {
            crowd.push(TcpStream::connect(door)?);
        }
    }
    let mut nbd = Nbd::connect(rig.nbd(1), VOLUME, Box::new(|| true))?;
    nbd.read(0, &mut [0; 4096])?;
    let initiator = Initiator::logged_in(rig, VOLUME, &[]).context("an initiator in a crowd")?;
    operator.target(VOLUME)?;
    let most = rig.node(1).descriptors()?;
    println!("{} connections: {most} descriptors after {:.1?}", crowd.len(), begun.elapsed());
    for kind in ["an NBD client is refused", "an iSCSI connection is closed", "a peer is refused"] {
        is_logged(rig, "a crowd", &[kind, "too many connections wait"])?;
    }
    drop((crowd, nbd, initiator));
    let begun = Instant::now();
    loop {
        let now = rig.node(1).descriptors()?;
        if now <= before {
            return Ok(());
        }
        ensure!(begun.elapsed() < crate::SOON, "{now} descriptors, and {before} before the crowd");
        thread::sleep(Duration::from_millis(20));
    }
}
