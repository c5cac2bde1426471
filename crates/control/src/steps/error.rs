//! Why a step by hand did not work out.
use proto::catalog_client::CallError;
use thiserror::Error;
use tonic::Status;

#[derive(Debug, Error)]
pub enum StepError {
    #[error(transparent)]
    Connect(#[from] certs::ConnectError),
    #[error(transparent)]
    Catalog(#[from] CallError),
    #[error("the node refused: {}", .0.message())]
    Node(Box<Status>),
    #[error("there is no volume `{name}`")]
    NoVolume { name: String },
    #[error("there is a volume `{name}` already, and it is another one")]
    VolumeExists { name: String },
    #[error("the catalog knows no node `{node}`; is it running?")]
    NoNode { node: String },
    #[error(
        "nobody serves `{name}`: start its target with `pollux direct volume serve {name} --on NODE`"
    )]
    NotServed { name: String },
    #[error("the volume `{name}` has no replica on `{node}`")]
    NoReplica { name: String, node: String },
    #[error("the volume `{name}` has a replica on `{node}` already")]
    ReplicaThere { name: String, node: String },
    #[error(
        "somebody else made replica {replica} of `{name}` anew at the same time: look at its status, and \
         say it again if that is still needed"
    )]
    MadeTwice { name: String, replica: u64 },
    #[error(
        "the replica of `{name}` on `{node}` votes: its content is needed. To move it, `pollux direct volume replica replace`"
    )]
    StillVotes { name: String, node: String },
    #[error("a volume has 1 to 7 replicas, each on a node of its own")]
    BadReplicas,
    #[error("the volume `{volume}` has no snapshot `{snapshot}`")]
    NoSnapshot { volume: String, snapshot: String },
    #[error("the snapshot has {has} bytes, and a clone of {size} would be smaller")]
    Smaller { size: u64, has: u64 },
    #[error("`{name}` is not served now: {why}")]
    NotServing { name: String, why: String },
    #[error("no replica of `{name}` has a vote yet")]
    NoVotes { name: String },
    #[error("`{name}` is being deleted; finish that with `pollux direct volume delete {name}`")]
    Deleting { name: String },
    #[error("volumes were cloned from it, and need it: {clones}. Delete them first")]
    HasClones { clones: String },
    #[error("`{name}` was to be a clone of `{source_name}`, which is gone; delete `{name}`")]
    OriginGone { name: String, source_name: String },
    #[error(
        "{have} nodes have the snapshot, and `{name}` needs {need}: say it again when more are back"
    )]
    TooFewCopies { name: String, have: usize, need: usize },
    #[error(
        "the content of `{name}` is gone, but `{source_name}` still has it marked as a clone: {why}. \
         Serve `{source_name}`, and delete `{name}` again"
    )]
    MarkLeft { name: String, source_name: String, why: String },
    #[error(
        "{what} did not happen within {seconds} s; it goes on by itself, see `pollux direct volume status {name}`"
    )]
    TooLong { what: &'static str, name: String, seconds: u64 },
}

impl From<Status> for StepError {
    fn from(status: Status) -> StepError {
        StepError::Node(Box::new(status))
    }
}
