//! The way to a shard from other threads.
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use mio::Waker;
use tracing::warn;

use super::Order;

/// Sends orders and wakes the shard for them.
#[derive(Clone)]
pub struct Sender {
    orders: mpsc::Sender<Order>,
    waker: Arc<Waker>,
}

impl Sender {
    pub fn new(waker: Waker) -> (Sender, Receiver<Order>) {
        let (orders, receiver) = mpsc::channel();
        (Sender { orders, waker: Arc::new(waker) }, receiver)
    }

    /// A shard that has ended drops the order, and with it whoever should be answered.
    pub fn send(&self, order: Order) {
        let sent = self.orders.send(order).is_ok();
        if sent && let Err(error) = self.waker.wake() {
            warn!(%error, "the data plane cannot be woken; it looks by itself soon");
        }
    }
}
