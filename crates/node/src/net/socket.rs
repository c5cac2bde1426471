//! One connection: what waits to be sent, and reading with as few system calls as there can be.
//!
//! Nothing blocks. What is pushed goes out with the next [`Socket::flush`], in one call for as many
//! pieces as the kernel takes; received bytes land in the payload that is under way first, and in
//! the owner's scratch memory behind it, in one call as well.
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use frontend::piece::Piece;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// Pieces of one call. The kernel takes up to 1,024; more than this is seldom there at once.
const GATHER: usize = 64;

/// Small pieces behind one another become one: less work for the kernel than a slice for each.
const JOIN_MAX: usize = 4096;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(into),
            Stream::Unix(stream) => stream.read_vectored(into),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(from),
            Stream::Unix(stream) => stream.write_vectored(from),
        }
    }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes {
        landed: usize,
        scratch: usize,
    },
    /// Nothing more for now.
    Nothing,
    /// The other side has closed.
    End,
}

#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    queue: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    queued: usize,
}

impl Socket {
    pub fn new(stream: Stream) -> Socket {
        Socket { stream, queue: VecDeque::new(), sent: 0, queued: 0 }
    }

    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
        }
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn push(&mut self, piece: Piece) {
        self.queued += piece.as_bytes().len();
        if let Piece::Bytes(bytes) = &piece
            && let Some(Piece::Bytes(last)) = self.queue.back_mut()
            && last.len() + bytes.len() <= JOIN_MAX
        {
            return last.extend_from_slice(bytes);
        }
        self.queue.push_back(piece);
    }

    /// Sends until everything is out or the kernel takes no more.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.queued > 0 {
            let mut slices: [IoSlice<'_>; GATHER] = std::array::from_fn(|_| IoSlice::new(&[]));
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.queue) {
                let skip = if count == 0 { self.sent } else { 0 };
                *slice = IoSlice::new(&piece.as_bytes()[skip..]);
                count += 1;
            }
            match self.stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.forget(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn forget(&mut self, written: usize) {
        self.queued -= written;
        let mut left = written + self.sent;
        while let Some(piece) = self.queue.front() {
            let len = piece.as_bytes().len();
            if left < len {
                break;
            }
            left -= len;
            self.queue.pop_front();
        }
        self.sent = left;
    }

    pub fn read(&mut self, landing: &mut [u8], scratch: &mut [u8]) -> io::Result<Got> {
        let room = landing.len();
        loop {
            let slices = &mut [IoSliceMut::new(landing), IoSliceMut::new(scratch)];
            let slices = if room == 0 { &mut slices[1..] } else { &mut slices[..] };
            return match self.stream.read_vectored(slices) {
                Ok(0) => Ok(Got::End),
                Ok(got) => {
                    let landed = got.min(room);
                    Ok(Got::Bytes { landed, scratch: got - landed })
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Got::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Data;

    use super::*;

    fn pair() -> (Socket, Socket) {
        let (one, other) = UnixStream::pair().unwrap();
        (Socket::new(Stream::Unix(one)), Socket::new(Stream::Unix(other)))
    }

    fn take_all(socket: &mut Socket, landing: &mut [u8]) -> (usize, Vec<u8>) {
        let (mut landed, mut rest) = (0, Vec::new());
        let mut scratch = [0; 1000];
        while let Got::Bytes { landed: there, scratch: more } =
            socket.read(&mut landing[landed..], &mut scratch).unwrap()
        {
            landed += there;
            rest.extend_from_slice(&scratch[..more]);
        }
        (landed, rest)
    }

    /// Protects from bytes that are lost or doubled where the kernel takes a part of a piece.
    #[test]
    fn everything_arrives_in_order_however_the_kernel_cuts_it() {
        let (mut from, mut to) = pair();
        let mut sent = Vec::new();
        for number in 0..400_u32 {
            let bytes: Vec<u8> =
                (0..number * 7).map(|at| u8::try_from((at + number) % 256).unwrap()).collect();
            sent.extend_from_slice(&bytes);
            match number % 3 {
                0 => from.push(Piece::Data(Data::copy_of(&bytes))),
                _ => from.push(Piece::Bytes(bytes)),
            }
        }
        let mut got = Vec::new();
        while got.len() < sent.len() {
            from.flush().unwrap();
            got.extend_from_slice(&take_all(&mut to, &mut []).1);
        }
        assert!(got == sent);
        assert_eq!(from.queued(), 0);
    }

    #[test]
    fn a_payload_under_way_is_filled_first() {
        let (mut from, mut to) = pair();
        from.push(Piece::Bytes(vec![1; 300]));
        from.push(Piece::Bytes(vec![2; 50]));
        from.flush().unwrap();
        let mut landing = [0; 300];
        let (landed, rest) = take_all(&mut to, &mut landing);
        assert_eq!((landed, rest), (300, vec![2; 50]));
        assert_eq!(landing, [1; 300]);
    }

    #[test]
    fn an_end_is_told() {
        let (from, mut to) = pair();
        drop(from);
        assert_eq!(to.read(&mut [], &mut [0; 10]).unwrap(), Got::End);
    }
}
