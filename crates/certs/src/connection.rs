//! A connection that was accepted, and what is known of its other end.
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::unproved::{Place, Proof};

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// An accepted connection. It takes one of the listener's places until it is dropped; while it has not proved who is at its
/// other end, the listener may take that place back, and then nothing can be read or written any more.
pub struct Connection<C> {
    pub(crate) io: Box<dyn Io>,
    pub(crate) caller: C,
    pub(crate) place: Place,
}

impl<C> Connection<C> {
    pub fn caller(&self) -> &C {
        &self.caller
    }

    pub fn proof(&self) -> Proof {
        self.place.proof()
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.place.is_evicted(cx) {
            true => Err(io::Error::new(io::ErrorKind::ConnectionAborted, CROWDED)),
            false => Ok(()),
        }
    }
}

pub(crate) const CROWDED: &str =
    "too many connections have not proved anything, and it is the oldest";

impl<C: Unpin> AsyncRead for Connection<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<C: Unpin> AsyncWrite for Connection<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
