//! What clients are asked to be, and what they ask of the world.
use std::ops::Range;

use replication::client::{Request, RequestId};
use replication::words::{ClientId, ConnectionNumber, StageNumber};

use crate::Rng;

#[derive(Clone, Copy, Debug)]
pub struct VolumeShape {
    /// In bytes.
    pub size: u64,
    pub block_size: u32,
}

#[derive(Clone, Debug)]
pub struct ClientsConfig {
    pub volumes: Vec<VolumeShape>,
    pub clients_per_volume: usize,
    /// Clients that only read, where others write, and stay with a target until it sends them away:
    /// also with one that another has taken over from.
    pub spies_per_volume: usize,
    /// Requests that a client has under way at most; each draws its own bound up to this one.
    pub depth: usize,
    /// A writer that goes from volume to volume in order, and another client that carries what it
    /// reads from the first to the others.
    pub ordered_group: bool,
    /// How many of a hundred clients are plain initiators, without a stage number.
    pub plain_percent: u64,
    /// New connections may leave the older one open, as a node does that lost its memory.
    pub leaves_open: bool,
    /// Between two requests of a client, in microseconds.
    pub think_us: Range<u64>,
    /// How long a client waits for an answer before it gives its connection up.
    pub patience_us: Range<u64>,
    /// Requests of all clients together, the last reads aside.
    pub requests_max: u64,
    pub seed: u64,
}

impl ClientsConfig {
    /// Thousands of requests in a minute, unless the world stands still.
    pub fn new(volumes: Vec<VolumeShape>, seed: u64) -> ClientsConfig {
        let mut rng = Rng::new(seed);
        ClientsConfig {
            volumes,
            clients_per_volume: 1 + rng.index(3),
            spies_per_volume: 0,
            depth: 1 << rng.index(5),
            ordered_group: false,
            plain_percent: *rng.pick(&[0, 0, 30, 100]),
            leaves_open: true,
            think_us: 1_000..60_000,
            patience_us: 2_000_000..20_000_000,
            requests_max: 3_000,
            seed,
        }
    }
}

/// What clients want the world to do. Answers come back through the methods of `Clients`.
#[derive(Clone, Debug)]
pub enum ClientAction {
    /// `logged_in` or `lost` follows. An older connection of this client may still be open: only
    /// `Disconnect` closes one, or the target, when it lets the new one in.
    Connect {
        client: ClientId,
        volume: usize,
        number: ConnectionNumber,
        stage: Option<StageNumber>,
    },
    /// Never before `logged_in`. `answered` or `lost` follows.
    Send {
        client: ClientId,
        number: ConnectionNumber,
        volume: usize,
        id: RequestId,
        request: Request,
    },
    /// Nothing that comes back over this connection counts any more.
    Disconnect { client: ClientId, number: ConnectionNumber, volume: usize },
    /// The world repeats `Command::NewStage` until it is answered; then `new_stage`.
    AskNewStage { client: ClientId, volume: usize },
    /// The world repeats `Command::TakeNote` until it is done; then `note_taken`.
    TakeNote { volume: usize },
}
