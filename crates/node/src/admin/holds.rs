//! Group holds: one cut over several volumes, coordinated by whoever calls.
use std::sync::LazyLock;
use std::time::Duration;

use proto::v1;
use replication::client::{Command, CommandAnswer};
use replication::words::{Span, Token};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::snapshots::snapshot_spec;
use super::{Admin, status_of, statuses};

pub type CutStream = UnboundedReceiverStream<Result<v1::CutResponse, Status>>;

/// A test has this node's targets be slow in everything that has to do with cuts.
async fn dawdle() {
    static MILLIS: LazyLock<Option<u64>> =
        LazyLock::new(|| std::env::var("POLLUX_SLOW_CUT_MS").ok()?.parse().ok());
    if let Some(millis) = *MILLIS {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

impl Admin {
    pub(super) async fn hold(&self, request: v1::HoldRequest) -> Result<v1::HoldResponse, Status> {
        dawdle().await;
        let volume = self.volume(request.volume).await?;
        let (token, lasts) = (Token(request.token), Span(request.lasts_us));
        match self.run(volume, Command::Hold { token, lasts }).await? {
            CommandAnswer::Held { through } => Ok(v1::HoldResponse { through_seq: through.0 }),
            _ => Err(Status::internal("a hold was answered with something else")),
        }
    }

    pub(super) async fn release(
        &self,
        request: v1::ReleaseRequest,
    ) -> Result<v1::ReleaseResponse, Status> {
        dawdle().await;
        let volume = self.volume(request.volume).await?;
        match self.run(volume, Command::Release { token: Token(request.token) }).await? {
            CommandAnswer::Released { unbroken } => Ok(v1::ReleaseResponse { unbroken }),
            _ => Err(Status::internal("a release was answered with something else")),
        }
    }

    pub(super) async fn cut(&self, request: v1::CutRequest) -> Result<CutStream, Status> {
        dawdle().await;
        let volume = self.volume(request.volume).await?;
        let spec = snapshot_spec(request.spec)?;
        let mut answers = self.command(volume, Command::Cut { token: Token(request.token), spec });
        let (send, receive) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(answer) = answers.recv().await {
                let response = match answer {
                    Ok(CommandAnswer::CutAt { at }) => Ok(response(at, false)),
                    Ok(CommandAnswer::Done { at }) => Ok(response(at, true)),
                    Ok(_) => Err(Status::internal("a cut was answered with something else")),
                    Err(refusal) => Err(status_of(&refusal)),
                };
                // Whoever coordinates may have gone: the hold breaks by itself.
                if send.send(response).is_err() {
                    return;
                }
            }
        });
        Ok(UnboundedReceiverStream::new(receive))
    }
}

fn response(at: block::Position, durable: bool) -> v1::CutResponse {
    v1::CutResponse { at: Some(statuses::position(at)), durable }
}
