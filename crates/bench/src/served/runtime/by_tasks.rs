//! A task for each connection, on a runtime of one thread.
use std::io::ErrorKind;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};

use super::inbox::Inbox;
use super::speech::Speech;
use crate::served::content::Content;

pub fn serve(listener: std::net::TcpListener, content: Content) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let door = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = door.accept().await?;
            let content = content.clone();
            tokio::spawn(async move {
                if let Err(error) = speak(stream, &content).await {
                    eprintln!("a connection failed: {error:#}");
                }
            });
        }
    })
}

async fn speak(stream: TcpStream, content: &Content) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut inbox, mut out) = (Inbox::new(), Vec::new());
    let mut speech = Speech::begin(content, &mut out);
    loop {
        send(&stream, &out).await?;
        out.clear();
        if speech.is_over() {
            return Ok(());
        }
        stream.readable().await?;
        match stream.try_read(inbox.room()) {
            Ok(came) => inbox.came(came, &mut speech, &mut out)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
