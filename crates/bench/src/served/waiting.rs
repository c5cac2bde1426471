//! Waiting for servers to answer.
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::session::{Patience, Session};

/// A server that says nothing for so long, while it is asked, is broken.
pub const SILENCE_MAX: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Which sessions have something to say.
pub struct Watching {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Watching {
    fn over(sessions: &[Session]) -> Result<Watching> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, session) in sessions.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, session, data, epoll::EventFlags::IN)?;
        }
        Ok(Watching { epoll, ready: Vec::with_capacity(sessions.len()) })
    }

    /// Waits for some of them, or for the time to pass.
    fn wait(&mut self, at_most: Timespec, chosen: &mut Vec<usize>) -> Result<()> {
        chosen.clear();
        self.ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&at_most)) {
            Err(Errno::INTR) => return Ok(()),
            came => came?,
        };
        for event in &self.ready {
            chosen.push(usize::try_from(event.data.u64())?);
        }
        Ok(())
    }
}

/// How a closed loop waits for answers.
pub enum Waiting {
    /// On the only session: it is waited for as it is read.
    Alone,
    OnSeveral(Watching),
}

impl Waiting {
    pub fn on(sessions: &[Session]) -> Result<Waiting> {
        match sessions {
            [_] => Ok(Waiting::Alone),
            several => Ok(Waiting::OnSeveral(Watching::over(several)?)),
        }
    }

    pub fn wait(&mut self, chosen: &mut Vec<usize>) -> Result<Patience> {
        match self {
            Waiting::Alone => {
                chosen.clear();
                chosen.push(0);
                Ok(Patience::Wait)
            }
            Waiting::OnSeveral(watching) => {
                watching.wait(SILENCE_MAX, chosen)?;
                ensure!(!chosen.is_empty(), "no answer within {} s", SILENCE_MAX.tv_sec);
                Ok(Patience::Look)
            }
        }
    }
}

/// Asks nothing for so long, and answers what servers ask.
pub fn hold(sessions: &mut [Session], time: Duration) -> Result<()> {
    let mut watching = Watching::over(sessions)?;
    let (end, mut chosen, mut done) = (Instant::now() + time, Vec::new(), Vec::new());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        watching.wait(Timespec::try_from(left)?, &mut chosen)?;
        for &at in &chosen {
            sessions[at].receive(Patience::Look, &mut done)?;
            sessions[at].send()?;
        }
        ensure!(done.is_empty(), "answers to nothing");
    }
}
