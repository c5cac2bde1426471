//! One loop over all sockets: whoever has something is read, then everybody is answered.
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};

use anyhow::Result;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::inbox::Inbox;
use super::speech::Speech;
use crate::served::content::Content;

const DOOR: Token = Token(0);

struct Connection<'a> {
    stream: TcpStream,
    speech: Speech<'a>,
    inbox: Inbox,
    out: Vec<u8>,
    sent: usize,
}

pub fn serve(listener: std::net::TcpListener, content: &Content) -> Result<()> {
    let mut door = TcpListener::from_std(listener);
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    poll.registry().register(&mut door, DOOR, Interest::READABLE)?;
    let mut connections: HashMap<Token, Connection> = HashMap::new();
    let mut last = 0;
    loop {
        poll.poll(&mut events, None)?;
        let mut awake = Vec::new();
        for event in &events {
            match event.token() {
                DOOR => accept(&door, &poll, &mut connections, &mut last, &mut awake, content)?,
                token => awake.push(token),
            }
        }
        for token in &awake {
            if let Some(connection) = connections.get_mut(token) {
                connection.receive()?;
            }
        }
        for token in awake {
            let over = connections.get_mut(&token).map(Connection::send).transpose()?;
            if over == Some(true) {
                connections.remove(&token);
            }
        }
    }
}

fn accept<'a>(
    door: &TcpListener,
    poll: &Poll,
    connections: &mut HashMap<Token, Connection<'a>>,
    last: &mut usize,
    awake: &mut Vec<Token>,
    content: &'a Content,
) -> Result<()> {
    loop {
        let mut stream = match door.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nodelay(true)?;
        *last += 1;
        let token = Token(*last);
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut out = Vec::new();
        let speech = Speech::begin(content, &mut out);
        connections.insert(token, Connection { stream, speech, inbox: Inbox::new(), out, sent: 0 });
        awake.push(token);
    }
}

impl Connection<'_> {
    /// Everything that is there: the poll tells of it once.
    fn receive(&mut self) -> Result<()> {
        loop {
            let room = self.inbox.room();
            let len = room.len();
            match self.stream.read(room) {
                Ok(came) => {
                    self.inbox.came(came, &mut self.speech, &mut self.out)?;
                    // A short read was the last of it; the next bytes wake us again.
                    if came < len || self.speech.is_over() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether that was the end.
    fn send(&mut self) -> Result<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(self.speech.is_over())
    }
}
