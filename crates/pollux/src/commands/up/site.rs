//! The processes of a site: started in order, watched, and stopped in order.
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use control::api::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::child::Spec;
use super::keeper::{self, Ended, Order};
use crate::commands::site::{is_well, of_folder};
use crate::commands::stop::{self, ParentPipe};
use crate::local::{Description, Folder};
use crate::span;

/// As long as the first start of a site may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// A process that ends so often before it was ready never will be.
const GIVE_UP: u32 = 4;

/// Runs until it is told to stop. `ready` is called when everything can be used.
pub async fn run(
    folder: &Folder,
    site: &Description,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (ended, mut news) = mpsc::channel(16);
    let mut control = Group::new(&ended);
    let mut nodes = Group::new(&ended);
    let mut told = pin!(stop::told(ParentPipe::default())?);
    let result = tokio::select! {
        result = work(folder, site, &mut control, &mut nodes, &mut news, ready) => result,
        () = &mut told => Ok(()),
    };
    // Whoever is in a hurry says it again.
    let mut hurry = pin!(stop::told(ParentPipe::default())?);
    for group in [&mut nodes, &mut control] {
        tokio::select! {
            () = group.stop(Order::Stop) => {}
            () = &mut hurry => break,
        }
    }
    for group in [&mut nodes, &mut control] {
        group.stop(Order::Kill).await;
    }
    result
}

async fn work(
    folder: &Folder,
    site: &Description,
    control: &mut Group,
    nodes: &mut Group,
    news: &mut mpsc::Receiver<Ended>,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let first = [Spec::control(folder, site)];
    control.start(&first);
    until_ready(&first, begun, news).await?;
    let all: Vec<Spec> = site.nodes.iter().map(|node| Spec::node(folder, site, node)).collect();
    nodes.start(&all);
    until_ready(&all, begun, news).await?;
    until_known(folder, site, begun, news).await?;
    ready()?;
    while let Some(ended) = news.recv().await {
        tell(&ended);
    }
    Ok(())
}

/// Processes that are stopped together.
struct Group {
    order: watch::Sender<Order>,
    ended: mpsc::Sender<Ended>,
    keepers: JoinSet<()>,
}

impl Group {
    fn new(ended: &mpsc::Sender<Ended>) -> Group {
        let (order, _) = watch::channel(Order::Run);
        Group { order, ended: ended.clone(), keepers: JoinSet::new() }
    }

    fn start(&mut self, specs: &[Spec]) {
        for spec in specs {
            // What the last run left must not be taken for this one's.
            let _ = std::fs::remove_file(&spec.ready);
            let (orders, ended) = (self.order.subscribe(), self.ended.clone());
            self.keepers.spawn(keeper::keep(spec.clone(), orders, ended));
        }
    }

    async fn stop(&mut self, how: Order) {
        self.order.send_replace(how);
        while self.keepers.join_next().await.is_some() {}
    }
}

async fn until_ready(
    specs: &[Spec],
    begun: Instant,
    news: &mut mpsc::Receiver<Ended>,
) -> Result<()> {
    while let Some(missing) = specs.iter().find(|spec| !spec.ready.exists()) {
        listen(news).await?;
        if begun.elapsed() > PATIENCE {
            let (who, log, words) = (&missing.who, missing.log.display(), missing.last_words());
            bail!(
                "{who} is not ready after {}; its log, {log}, ends with: {words}",
                span::rounded(PATIENCE)
            );
        }
    }
    Ok(())
}

/// Until the controller has heard of everybody.
async fn until_known(
    folder: &Folder,
    site: &Description,
    begun: Instant,
    news: &mut mpsc::Receiver<Ended>,
) -> Result<()> {
    let client = Client::new(of_folder(folder)?);
    let nodes = site.nodes.len();
    loop {
        let why = match client.nodes().await {
            Ok(found) => {
                let well = found.items.iter().filter(|node| is_well(&node.state)).count();
                if well >= nodes {
                    return Ok(());
                }
                format!("the controller sees {well} of {nodes} nodes in order")
            }
            Err(error) => error.message,
        };
        listen(news).await?;
        if begun.elapsed() > PATIENCE {
            bail!("the site is not ready after {}: {why}", span::rounded(PATIENCE));
        }
    }
}

/// For a moment.
async fn listen(news: &mut mpsc::Receiver<Ended>) -> Result<()> {
    let Ok(Some(ended)) = tokio::time::timeout(PAUSE, news.recv()).await else { return Ok(()) };
    if ended.times >= GIVE_UP {
        let Ended { spec, how, times, .. } = &ended;
        let (who, log, words) = (&spec.who, spec.log.display(), spec.last_words());
        bail!("{who} ended {times} times ({how}); its log, {log}, ends with: {words}");
    }
    tell(&ended);
    Ok(())
}

fn tell(ended: &Ended) {
    let Ended { spec, how, again_in, .. } = ended;
    let (who, log) = (&spec.who, spec.log.display());
    let again = again_in.as_millis();
    // By the log's thread: nothing may read it, and the site runs on.
    logging::line(&format!(
        "{who} ended ({how}): it is started again in {again} ms; its log is {log}"
    ));
}
