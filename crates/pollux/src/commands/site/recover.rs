//! `pollux site backup`, `restore` and `rebuild`: copies of the catalog, and a catalog from them.
//!
//! They ask the catalog itself, with a certificate: a catalog that was lost knows no token.
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use certs::Identity;
use comfy_table::Table;
use control::recovery::{self, Action, Gathered, Plan, Source};
use control::steps::Site;
use proto::v1;
use serde::Serialize;

use crate::cli::site::{ApiArgs, BringBack, CatalogAt, Rebuild, Restore, SiteCommand};
use crate::clock;
use crate::confirm::confirm;
use crate::local::Folder;
use crate::render::{self, Answer, Output, say};

/// Where a catalog is unless told.
const USUAL: &str = "127.0.0.1:7460";

pub fn run(command: SiteCommand, api: &ApiArgs, output: Output) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &command {
            SiteCommand::Backup { file, at } => backup(&connect(at, api)?, file, output).await,
            SiteCommand::Restore(wanted) => {
                restore(&connect(&wanted.at, api)?, wanted, output).await
            }
            SiteCommand::Rebuild(wanted) => {
                rebuild(&connect(&wanted.at, api)?, wanted, output).await
            }
            SiteCommand::Forget { name, yes, at } => forget(&connect(at, api)?, name, *yes).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The catalog that is named, or that of the site which runs in a folder of this machine.
fn connect(at: &CatalogAt, api: &ApiArgs) -> Result<Site> {
    let folder = match (&at.catalog, &api.site) {
        (None, Some(path)) => Some(Folder::at(path)),
        (None, None) => Folder::usual(),
        (Some(_), _) => None,
    };
    let local = match folder {
        Some(folder) => folder.read()?.map(|site| (site.catalog, folder.certs().join("catalog"))),
        None => None,
    };
    let (catalog, tls) = match (&at.catalog, local) {
        (Some(catalog), _) => (catalog.clone(), at.tls.clone()),
        (None, Some((catalog, tls))) => {
            let tls = at.tls.clone().or(tls.exists().then_some(tls));
            (catalog.to_string(), tls)
        }
        (None, None) => (USUAL.into(), at.tls.clone()),
    };
    let identity = tls.as_deref().map(Identity::load).transpose()?;
    Site::new(&catalog, identity).with_context(|| format!("the catalog at {catalog}"))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Copied {
    file: PathBuf,
    revision: u64,
    objects: usize,
    bytes: usize,
}

impl Answer for Copied {
    fn table(&self) -> Table {
        let Copied { file, revision, objects, bytes } = self;
        render::sentence(format!(
            "{objects} objects as of revision {revision} are in {} ({bytes} bytes). It has the secrets of volumes: keep it closed",
            file.display()
        ))
    }
}

async fn backup(site: &Site, file: &Path, output: Output) -> Result<()> {
    let copy = recovery::copy(site).await?;
    let bytes = proto::copy::encode(&copy, certs::sha256);
    write(file, &bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    let objects = copy.objects.iter().filter(|object| object.body.is_some()).count();
    let file = file.to_path_buf();
    render::show(&Copied { file, revision: copy.revision, objects, bytes: bytes.len() }, output)
}

/// Whole, durable, and for its owner only; a copy that is there already is replaced only by a whole one.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = parent.unwrap_or(Path::new("."));
    let aside = parent.join(format!(".{name}.new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&aside, path)) {
        // What is left of it is of no use.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    File::open(parent)?.sync_all()
}

/// What a plan is, or was when it was carried out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Nothing was changed.
    dry_run: bool,
    steps: Vec<ReportStep>,
    /// Nodes that did not answer.
    silent: Vec<Silent>,
    /// Of these nothing is known: there were none, or they are lost.
    unknown: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportStep {
    kind: String,
    name: String,
    action: &'static str,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Silent {
    node: String,
    why: String,
}

impl Answer for Report {
    fn table(&self) -> Table {
        let mut table = render::plain(&["KIND", "NAME", "ACTION", "NOTES"]);
        for step in &self.steps {
            let notes = step.notes.join("; ");
            table.add_row([step.kind.clone(), step.name.clone(), step.action.into(), notes]);
        }
        table
    }

    fn text(&self) -> String {
        let mut text = self.table().trim_fmt();
        for Silent { node, why } in &self.silent {
            text += &format!("\n{node} did not answer ({why}): what only it knows is not in this");
        }
        if !self.unknown.is_empty() {
            text += &format!(
                "\nnothing is known of {}: if there were any, make them anew",
                self.unknown.join(", ")
            );
        }
        if self.dry_run {
            text += "\nnothing was changed: this is what would be done";
        }
        text
    }
}

async fn restore(site: &Site, wanted: &Restore, output: Output) -> Result<()> {
    let path = &wanted.file;
    let bytes = fs::read(path).with_context(|| format!("{}", path.display()))?;
    let copy = proto::copy::decode(&bytes, certs::sha256);
    let copy = copy.with_context(|| format!("{}", path.display()))?;
    let taken = clock::utc(copy.taken_ms);
    let source = Source { what: format!("the copy of {taken}"), objects: copy.objects };
    bring_back(site, vec![source], &wanted.how, output).await
}

async fn rebuild(site: &Site, wanted: &Rebuild, output: Output) -> Result<()> {
    bring_back(site, Vec::new(), &wanted.how, output).await
}

async fn forget(site: &Site, name: &str, yes: bool) -> Result<()> {
    let present = recovery::copy(site).await?.objects;
    let gathered = recovery::gather(site, &present, &[], &[]).await?;
    let lost = recovery::find_lost(&present, &gathered, name)?;
    if !yes {
        let count = lost.replicas.len();
        let what =
            format!("Everything that is in `{name}` is lost for good: {count} replicas are wiped.");
        confirm(&what, "volume", name)?;
    }
    recovery::forget(site, &lost).await?;
    let mut text = format!("{name} is deleted, and {} replicas are wiped", lost.replicas.len());
    for (node, why) in &gathered.silent {
        text += &format!(
            "\n{node} did not answer ({why}): say it again when it is back, if it has a replica"
        );
    }
    say(&text)
}

async fn bring_back(
    site: &Site,
    sources: Vec<Source>,
    how: &BringBack,
    output: Output,
) -> Result<()> {
    let present = recovery::copy(site).await?.objects;
    may_change(&present, how)?;
    let gathered = recovery::gather(site, &present, &sources, &how.nodes).await?;
    ensure!(
        !sources.is_empty() || !gathered.sources.is_empty(),
        "no node answers, so there is nothing to rebuild from: start the nodes, or name them with --node ID=HOST:PORT"
    );
    let plan = recovery::plan(&present, &sources, &gathered);
    let report = report(&plan, &sources, &gathered, how.dry_run);
    if how.dry_run {
        return render::show(&report, output);
    }
    recovery::apply(site, &plan).await.context("nothing was changed")?;
    render::show(&report, output)?;
    let refused = plan.steps.iter().filter(|step| step.action == Action::Refuse).count();
    match refused {
        0 => Ok(()),
        refused => bail!(
            "{refused} objects were not brought back; the rest is. See NOTES, and say it again"
        ),
    }
}

/// What is newer in the catalog stays, but an operator should know that it is not empty.
fn may_change(present: &[v1::Object], how: &BringBack) -> Result<()> {
    let made = recovery::made(present);
    if made.is_empty() || how.force || how.dry_run {
        return Ok(());
    }
    let counts: Vec<String> = made.iter().map(|(what, count)| format!("{count} {what}")).collect();
    bail!(
        "the catalog is not empty, it has {}: look at what would be done with --dry-run, and go on with --force. What is newer in \
         the catalog stays, and what was deleted is not brought back",
        counts.join(", ")
    )
}

fn report(plan: &Plan, sources: &[Source], gathered: &Gathered, dry_run: bool) -> Report {
    let steps = plan.steps.iter().map(|step| ReportStep {
        kind: noun(step.kind).into(),
        name: step.name.clone(),
        action: match step.action {
            Action::Restore => "restore",
            Action::Keep => "keep",
            Action::Refuse => "refuse",
        },
        notes: step.notes.clone(),
    });
    let silent = gathered.silent.iter();
    Report {
        dry_run,
        steps: steps.collect(),
        silent: silent.map(|(node, why)| Silent { node: node.clone(), why: why.clone() }).collect(),
        unknown: recovery::unknown_kinds(sources, gathered),
    }
}

fn noun(kind: v1::Kind) -> &'static str {
    match kind {
        v1::Kind::Volume => "volume",
        v1::Kind::Node => "node",
        v1::Kind::Snapshot => "snapshot",
        v1::Kind::Group => "group",
        v1::Kind::GroupSnapshot => "group snapshot",
        v1::Kind::Controller => "controller",
        v1::Kind::Token => "token",
        v1::Kind::Host => "host",
        v1::Kind::Unspecified => "object",
    }
}
