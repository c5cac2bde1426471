//! Waiting for what the site does by itself, with a word about how far it is.
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use block::ByteLen;
use control::api::types::{Copy, Volume};
use control::api::{ApiError, Client, Code};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::volumes::percent;
use super::{health, is_in_order, is_well};
use crate::cli::site::WaitArgs;
use crate::span;

/// Between two looks: quick for what takes a moment, and no burden for what takes hours.
const FIRST: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(1);
/// Between two lines where there is no terminal, if only the share has changed.
const SAME_LINE: Duration = Duration::from_secs(10);

/// What a volume is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Healthy,
    /// At least so large.
    Size(u64),
    /// So many replicas, all of them in order.
    Replicas(u32),
    Gone,
}

/// How far it is.
#[derive(Debug, PartialEq)]
enum Look {
    Reached,
    /// A share of the way, from 0 to 1, and what is going on.
    Under(f64, String),
}

/// Asks for something; if one waits for it, again for as long as another operation is under way.
pub async fn ask<T>(
    wait: WaitArgs,
    ask: impl AsyncFn() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let begun = Instant::now();
    let mut pause = FIRST;
    loop {
        match ask().await {
            Err(error)
                if wait.wait && error.code == Code::Busy && begun.elapsed() < wait.timeout =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LATER);
            }
            answer => return answer,
        }
    }
}

/// Waits if that is wanted, and answers with what the volume is then.
pub async fn until(
    client: &Client,
    name: &str,
    goal: Goal,
    wait: WaitArgs,
) -> Result<Option<Volume>> {
    if !wait.wait {
        return Ok(None);
    }
    let (begun, mut pause, mut meter) = (Instant::now(), FIRST, Meter::new());
    loop {
        let found = match client.volume(name).await {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            // The site may be away for a moment; what was asked for goes on.
            Err(error) if matches!(error.code, Code::Busy | Code::Unavailable) => Err(error),
            Err(error) => return Err(error.into()),
        };
        let going_on = match found {
            Ok(found) => match look(goal, name, found.as_ref()) {
                Some(Look::Reached) => return Ok(found),
                Some(Look::Under(share, line)) => {
                    meter.show(share, &line);
                    line
                }
                None => bail!("the volume `{name}` is gone: somebody has deleted it"),
            },
            Err(error) => {
                meter.say(&error.message);
                error.message
            }
        };
        if begun.elapsed() >= wait.timeout {
            drop(meter);
            let waited = span::rounded(wait.timeout);
            bail!(
                "it was not done within {waited}, and goes on by itself: {going_on} (`pollux explain volume {name}`)"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LATER);
    }
}

/// `None`: there is nothing any more that could become it.
fn look(goal: Goal, name: &str, found: Option<&Volume>) -> Option<Look> {
    let Some(volume) = found else { return (goal == Goal::Gone).then_some(Look::Reached) };
    let all = |wanted: u32| {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        volume.copies.len() == wanted && volume.copies.iter().all(is_in_order)
    };
    let reached = match goal {
        Goal::Healthy => is_well(&volume.state),
        Goal::Size(wanted) => volume.size >= wanted && volume.wanted_size.is_none(),
        Goal::Replicas(wanted) => is_well(&volume.state) && all(wanted),
        Goal::Gone => false,
    };
    Some(match reached {
        true => Look::Reached,
        false => Look::Under(share(goal, volume), line(name, volume)),
    })
}

fn share(goal: Goal, volume: &Volume) -> f64 {
    let wanted = match goal {
        Goal::Replicas(wanted) => wanted,
        Goal::Healthy => volume.replicas,
        // Done in one, or not yet.
        Goal::Size(_) | Goal::Gone => return 0.0,
    };
    let has = |copy: &Copy| match is_in_order(copy) {
        true => 1.0,
        false => copy.progress.unwrap_or(0.0).clamp(0.0, 1.0),
    };
    let most = u32::try_from(volume.copies.len()).unwrap_or(u32::MAX).max(wanted).max(1);
    volume.copies.iter().map(has).sum::<f64>() / f64::from(most)
}

/// What is going on, without numbers that change all the time.
fn line(name: &str, volume: &Volume) -> String {
    let state = &volume.state;
    let mut line = format!("{name} is {}", health(state.health));
    if !state.message.is_empty() {
        line += &format!(": {}", state.message);
    }
    for copy in volume.copies.iter().filter(|copy| !is_in_order(copy)) {
        let why = if copy.reason.is_empty() { String::new() } else { format!(", {}", copy.reason) };
        line += &format!("; {}: {}{why}", copy.node, copy.mode);
    }
    if let Some(wanted) = volume.wanted_size {
        line += &format!("; it grows to {}", ByteLen(wanted));
    }
    if !is_well(state) && !state.advice.is_empty() {
        line += &format!("; to do: {}", state.advice);
    }
    line
}

/// A bar where somebody looks at a terminal, and lines otherwise.
enum Meter {
    Bar(ProgressBar),
    Lines { said: String, at: Option<Instant>, share: f64 },
}

const STEPS: u64 = 1000;

impl Meter {
    fn new() -> Meter {
        if !io::stderr().is_terminal() {
            return Meter::Lines { said: String::new(), at: None, share: 0.0 };
        }
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:20} {percent} % {elapsed} {wide_msg}");
        bar.set_style(style.expect("the template is right"));
        Meter::Bar(bar)
    }

    fn show(&mut self, share: f64, line: &str) {
        match self {
            Meter::Bar(bar) => {
                bar.set_position(steps(share));
                bar.set_message(line.to_owned());
            }
            Meter::Lines { said, at, share: before } => {
                let long_ago = at.is_none_or(|at| at.elapsed() >= SAME_LINE);
                if line != said || long_ago && share > *before {
                    let percent = if share > 0.0 { percent(share) + ", " } else { String::new() };
                    // Nobody who waits is stopped by a reader that has gone.
                    let _ = writeln!(io::stderr(), "{percent}{line}");
                    (*said, *at, *before) = (line.to_owned(), Some(Instant::now()), share);
                }
            }
        }
    }

    /// Something that has nothing to do with how far it is.
    fn say(&mut self, text: &str) {
        let share = match self {
            Meter::Bar(bar) => {
                bar.set_message(text.to_owned());
                return;
            }
            Meter::Lines { share, .. } => *share,
        };
        self.show(share, text);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Meter::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn steps(share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "it is between 0 and 1000")]
    let steps = (share.clamp(0.0, 1.0) * 1000.0) as u64;
    steps
}

#[cfg(test)]
mod tests;
