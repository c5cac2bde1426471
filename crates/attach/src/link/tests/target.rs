//! A small target of NBD in memory, with moods.
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use frontend::nbd::hello::Hello;
use frontend::nbd::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_LEN, SIMPLE_REPLY_MAGIC, command,
    info, option, option_reply, transmission_flag, u16_at, u32_at, u64_at,
};

use crate::link::{Where, Whereabouts};

pub const SIZE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Connections end after so many requests; the last one is done, and not answered.
    Brief {
        requests: usize,
    },
    /// Connections are closed as soon as they come.
    Away,
    /// Nothing is answered.
    Silent,
    /// So many requests are refused because it is going.
    ShuttingDown {
        requests: usize,
    },
    StageLost,
}

struct Inside {
    address: String,
    elsewhere: Option<String>,
    mood: Mood,
    data: Vec<u8>,
    numbers: Vec<u64>,
    open: Vec<TcpStream>,
    /// What it says of the volume instead of the truth.
    lie: Option<Lie>,
}

#[derive(Clone, Copy, Debug)]
pub enum Lie {
    /// Its size, and its block size.
    Geometry(u64, u32),
    /// More and more replies to the same option.
    Endless,
}

#[derive(Clone)]
pub struct Target(Arc<Mutex<Inside>>);

struct Finder(Target);

impl Whereabouts for Finder {
    fn find(&self) -> Result<Where, String> {
        let inside = self.0.0.lock().expect("no thread panicked");
        let nbd = inside.elsewhere.clone().unwrap_or(inside.address.clone());
        Ok(Where { nbd, iscsi: String::new() })
    }
}

impl Target {
    pub fn start() -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one").to_string();
        let inside = Inside {
            address,
            elsewhere: None,
            mood: Mood::Well,
            data: vec![0; SIZE],
            numbers: Vec::new(),
            open: Vec::new(),
            lie: None,
        };
        let target = Target(Arc::new(Mutex::new(inside)));
        let serving = target.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let target = serving.clone();
                // The end of a connection is no news here.
                thread::spawn(move || {
                    let _ = target.serve(&stream);
                    // Others have it open still.
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        target
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inside) -> T) -> T {
        act(&mut self.0.lock().expect("no thread panicked"))
    }

    pub fn whereabouts(&self) -> Box<dyn Whereabouts> {
        Box::new(Finder(self.clone()))
    }

    pub fn set(&self, mood: Mood) {
        let open = self.with(|inside| {
            inside.mood = mood;
            if mood == Mood::Silent { Vec::new() } else { std::mem::take(&mut inside.open) }
        });
        for stream in open {
            // It may be closed already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn move_to(&self, other: &Target) {
        let address = other.with(|inside| inside.address.clone());
        self.with(|inside| inside.elsewhere = Some(address));
    }

    pub fn lie(&self, lie: Option<Lie>) {
        self.with(|inside| inside.lie = lie);
    }

    pub fn address(&self) -> String {
        self.with(|inside| inside.address.clone())
    }

    pub fn grow(&self, size: usize) {
        self.with(|inside| inside.data.resize(size, 0));
    }

    pub fn logins(&self) -> usize {
        self.with(|inside| inside.numbers.len())
    }

    pub fn numbers_rose(&self) -> bool {
        self.with(|inside| inside.numbers.is_sorted_by(|one, next| one < next))
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mood = self.with(|inside| inside.mood);
        if mood == Mood::Away {
            return Ok(());
        }
        let kept = stream.try_clone()?;
        self.with(|inside| inside.open.push(kept));
        if !self.negotiate(stream)? {
            return Ok(());
        }
        let mut done = 0;
        loop {
            let mut head = [0; REQUEST_LEN];
            stream.read_exact(&mut head)?;
            let mut payload = Vec::new();
            if u16_at(&head, 6) == command::WRITE {
                payload.resize(u32_at(&head, 24) as usize, 0);
                stream.read_exact(&mut payload)?;
            }
            done += 1;
            match self.with(|inside| inside.mood) {
                Mood::Brief { requests } if done >= requests => {
                    self.perform(&head, &payload);
                    return Ok(());
                }
                Mood::ShuttingDown { requests } => {
                    let next = Mood::ShuttingDown { requests: requests.saturating_sub(1) };
                    self.with(|it| it.mood = if requests > 1 { next } else { Mood::Well });
                    stream.write_all(&reply(&head, 108))?;
                }
                Mood::Silent => thread::sleep(Duration::from_secs(60)),
                _ => {
                    let answer = self.perform(&head, &payload);
                    stream.write_all(&answer)?;
                }
            }
        }
    }

    fn perform(&self, head: &[u8], payload: &[u8]) -> Vec<u8> {
        let at = usize::try_from(u64_at(head, 16)).expect("an offset within memory");
        let len = u32_at(head, 24) as usize;
        self.with(|inside| {
            let Some(range) = inside.data.get_mut(at..at + len) else { return reply(head, 22) };
            let mut answer = reply(head, 0);
            match u16_at(head, 6) {
                command::READ => answer.extend_from_slice(range),
                command::WRITE => range.copy_from_slice(payload),
                command::TRIM | command::WRITE_ZEROES => range.fill(0),
                _ => {}
            }
            answer
        })
    }

    /// Whether the volume is open now.
    fn negotiate(&self, mut stream: &TcpStream) -> io::Result<bool> {
        let mut greeting = GREETING_MAGIC.to_be_bytes().to_vec();
        greeting.extend(OPTION_MAGIC.to_be_bytes());
        greeting.extend(3_u16.to_be_bytes());
        stream.write_all(&greeting)?;
        stream.read_exact(&mut [0; 4])?;
        let mut number = 0;
        loop {
            let mut head = [0; 16];
            stream.read_exact(&mut head)?;
            let kind = u32_at(&head, 8);
            let mut text = vec![0; u32_at(&head, 12) as usize];
            stream.read_exact(&mut text)?;
            match kind {
                option::HELLO => {
                    number = Hello::parse(&text).expect("a hello of ours").number;
                    stream.write_all(&said(kind, option_reply::CHALLENGE, &[7; 32]))?;
                    stream.write_all(&said(kind, option_reply::ACK, &[]))?;
                }
                option::GO | option::INFO => {
                    assert!(text[4..].starts_with(b"db:stage.3"), "the stage is in every login");
                    if self.with(|inside| inside.mood) == Mood::StageLost {
                        stream.write_all(&said(kind, option_reply::ERR_STAGE_LOST, b"lost"))?;
                        continue;
                    }
                    let (size, lie) = self.with(|inside| (inside.data.len() as u64, inside.lie));
                    let (size, block) = match lie {
                        Some(Lie::Geometry(size, block)) => (size, block),
                        _ => (size, 512),
                    };
                    let flags = transmission_flag::HAS_FLAGS | transmission_flag::SEND_FLUSH;
                    let mut told = info::EXPORT.to_be_bytes().to_vec();
                    told.extend(size.to_be_bytes());
                    told.extend(flags.to_be_bytes());
                    stream.write_all(&said(kind, option_reply::INFO, &told))?;
                    let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
                    sizes.extend([block, 4096, 1 << 20].iter().flat_map(|it| it.to_be_bytes()));
                    stream.write_all(&said(kind, option_reply::INFO, &sizes))?;
                    while let Some(Lie::Endless) = lie {
                        stream.write_all(&said(kind, option_reply::INFO, &sizes))?;
                    }
                    stream.write_all(&said(kind, option_reply::ACK, &[]))?;
                    if kind == option::GO {
                        self.with(|inside| inside.numbers.push(number));
                        return Ok(true);
                    }
                }
                _ => return Ok(false),
            }
        }
    }
}

fn reply(head: &[u8], error: u32) -> Vec<u8> {
    let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(&head[8..16]);
    reply
}

fn said(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(option.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(u32::try_from(data.len()).expect("a short one").to_be_bytes());
    reply.extend_from_slice(data);
    reply
}
