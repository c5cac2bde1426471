//! The admin interface of a node: calls become orders to the shard.
//!
//! `replicas.rs`, `targets.rs`, `snapshots.rs`, `extents.rs`, `holds.rs`, `reach.rs` and `pools.rs` are the calls by
//! their subject, `statuses.rs` is what the shard shows as messages, `errors.rs` the one place that maps refusals to statuses, `fence.rs`
//! keeps off controllers that were replaced.
mod errors;
mod extents;
mod fence;
mod holds;
mod pools;
mod reach;
mod replicas;
mod service;
mod snapshots;
mod statuses;
mod targets;

use std::sync::Arc;

use certs::Identity;
use proto::v1;
use replication::client::{Command, CommandAnswer};
use replication::words::{Moment, NodeId, VolumeUid};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::catalog::Books;
use crate::clock;
use crate::process::Copies;
use crate::random;
use crate::shard::{self, Order, Refusal, ReplicaStatus, Sender, TargetStatus};

pub use errors::status_of;
pub use fence::{Fence, Generation};
pub use statuses::{membership, target as target_status};

/// Answers the calls of one node.
#[derive(Clone)]
pub struct Admin {
    node: NodeId,
    /// This run of the process.
    boot: u64,
    since: Moment,
    shard: Sender,
    books: Arc<Books>,
    fence: Arc<Fence>,
    /// What peers are called with; without it only those on this machine are.
    identity: Option<Identity>,
    copies: Copies,
}

impl Admin {
    pub fn new(
        node: NodeId,
        identity: Option<Identity>,
        shard: Sender,
        books: Arc<Books>,
        fence: Arc<Fence>,
        copies: Copies,
    ) -> Admin {
        let (boot, since) = (random::number(), clock::now());
        Admin { node, boot, since, shard, books, fence, identity, copies }
    }

    /// Sends an order that has one answer.
    async fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(shard::Answer<T>) -> Order,
    ) -> Result<T, Status> {
        let (answer, answered) = self.answer();
        self.shard.send(order(answer));
        answered.await
    }

    /// Where an order is answered, and the answer.
    fn answer<T: Send + 'static>(
        &self,
    ) -> (shard::Answer<T>, impl Future<Output = Result<T, Status>> + Send + use<T>) {
        let (answer, answered) = oneshot::channel::<Result<T, Refusal>>();
        let answer = Box::new(move |result| {
            // The caller may have gone; what was done stays done.
            let _ = answer.send(result);
        });
        let answered = async move {
            let result = answered.await.map_err(|_| ended())?;
            result.map_err(|refusal| status_of(&refusal))
        };
        (answer, answered)
    }

    /// Targets of this node, or the one of a volume.
    async fn targets_of(&self, of: Option<VolumeUid>) -> Result<Vec<TargetStatus>, Status> {
        let (tell, told) = oneshot::channel();
        let tell = Box::new(move |targets| {
            // Whoever asked may have gone.
            let _ = tell.send(targets);
        });
        self.shard.send(Order::Targets { of, tell });
        told.await.map_err(|_| ended())
    }

    /// Replicas of this node, or the one of a volume.
    async fn replicas_of(&self, of: Option<VolumeUid>) -> Result<Vec<ReplicaStatus>, Status> {
        let (tell, told) = oneshot::channel();
        let tell = Box::new(move |replicas| {
            let _ = tell.send(replicas);
        });
        self.shard.send(Order::Replicas { of, tell });
        told.await.map_err(|_| ended())
    }

    /// The answers to a command: one, or for a cut two.
    fn command(
        &self,
        volume: VolumeUid,
        command: Command,
    ) -> mpsc::UnboundedReceiver<Result<CommandAnswer, Refusal>> {
        let (answer, answers) = mpsc::unbounded_channel();
        let reply = Box::new(move |result| {
            let _ = answer.send(result);
        });
        self.shard.send(Order::Command { volume, command, reply });
        answers
    }

    async fn run(&self, volume: VolumeUid, command: Command) -> Result<CommandAnswer, Status> {
        let mut answers = self.command(volume, command);
        let result = answers.recv().await.ok_or_else(ended)?;
        result.map_err(|refusal| status_of(&refusal))
    }

    /// A command that is done when a quorum has it durably.
    async fn done(&self, volume: VolumeUid, command: Command) -> Result<v1::Done, Status> {
        let at = match self.run(volume, command).await? {
            CommandAnswer::Done { at } => Some(statuses::position(at)),
            _ => None,
        };
        Ok(v1::Done { at })
    }

    /// The volume that is meant, as the catalog has it.
    async fn volume(&self, of: Option<v1::VolumeRef>) -> Result<VolumeUid, Status> {
        let of = of.ok_or_else(|| Status::invalid_argument("`volume` is missing"))?;
        let record = self.books.volume(&of.name).await?;
        let record = record.ok_or_else(|| {
            Status::not_found(format!("there is no volume `{}` in the catalog", of.name))
        })?;
        if !of.uid.is_empty() && of.uid != record.record.uid.0 {
            let name = of.name;
            return Err(Status::not_found(format!("the volume `{name}` has another uid by now")));
        }
        Ok(record.record.uid)
    }
}

fn ended() -> Status {
    Status::unavailable("the node is about to end; ask again when it is back")
}

fn uid(bytes: &[u8], field: &str) -> Result<[u8; 16], Status> {
    bytes.try_into().map_err(|_| {
        Status::invalid_argument(format!("`{field}` has {} bytes and needs 16", bytes.len()))
    })
}
