//! When a daemon is to end: somebody tells it by a signal, or whoever started it is gone.
use std::future::{Future, pending};
use std::io::{self, Read};
use std::thread;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ParentPipe {
    /// End when the standard input does: whoever started this process holds its other end.
    #[arg(long, hide = true)]
    pub parent_pipe: bool,
}

/// Comes to its end with SIGTERM, SIGINT or the parent. Made on the runtime that waits for it.
pub fn told(parent: ParentPipe) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let orphaned = parent.parent_pipe.then(orphaned).transpose()?;
    Ok(async move {
        let orphaned = async {
            match orphaned {
                // The sender says nothing: it ends, and with it this.
                Some(orphaned) => drop(orphaned.await),
                None => pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = orphaned => {}
        }
    })
}

/// A thread of its own, since nobody can stop waiting for a pipe. It ends with the process.
fn orphaned() -> io::Result<oneshot::Receiver<()>> {
    let (held, orphaned) = oneshot::channel::<()>();
    thread::Builder::new().name("parent".into()).spawn(move || {
        let mut nothing = [0; 64];
        loop {
            match io::stdin().read(&mut nothing) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                Ok(_) | Err(_) => {}
            }
        }
        drop(held);
    })?;
    Ok(orphaned)
}
