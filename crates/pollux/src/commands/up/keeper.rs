//! Keeps one process running until it is to stop.
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};

use super::child::Spec;

/// Before a process is started again: doubled each time that it ends soon.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A process that ran for so long was no failure: the next pause is short again.
const LONG: Duration = Duration::from_secs(60);
/// A node closes its targets and pools within seconds. One that does not is killed, which it survives.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Run,
    Stop,
    /// At once.
    Kill,
}

/// A process ended, and nobody told it to.
#[derive(Debug)]
pub struct Ended {
    pub spec: Spec,
    pub how: String,
    /// How often in a row.
    pub times: u32,
    pub again_in: Duration,
}

/// Ends when the process has ended and was to.
pub async fn keep(spec: Spec, mut orders: watch::Receiver<Order>, ended: mpsc::Sender<Ended>) {
    let (mut pause, mut times) = (PAUSE, 0);
    loop {
        let begun = Instant::now();
        let how = match spec.start() {
            Ok((mut child, _pipe)) => tokio::select! {
                status = child.wait() => match status {
                    Ok(status) => status.to_string(),
                    Err(error) => format!("it is not known how: {error}"),
                },
                () = told(&mut orders) => return stop(child, orders).await,
            },
            Err(error) => format!("it could not be started: {error}"),
        };
        if begun.elapsed() >= LONG {
            (pause, times) = (PAUSE, 0);
        }
        times += 1;
        let event = Ended { spec: spec.clone(), how, times, again_in: pause };
        // Nobody listens while the site stops.
        let _ = ended.send(event).await;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = told(&mut orders) => return,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Waits until it is to stop.
async fn told(orders: &mut watch::Receiver<Order>) {
    // Whoever gives orders has gone: that is one, too.
    let _ = orders.wait_for(|order| *order != Order::Run).await;
}

async fn stop(mut child: Child, mut orders: watch::Receiver<Order>) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, Signal::TERM);
    }
    let hurried = async {
        if orders.wait_for(|order| *order == Order::Kill).await.is_err() {
            std::future::pending().await
        }
    };
    tokio::select! {
        _ = child.wait() => return,
        () = tokio::time::sleep(PATIENCE) => {}
        () = hurried => {}
    }
    let _ = child.kill().await;
}
