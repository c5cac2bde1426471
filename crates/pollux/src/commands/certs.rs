//! `pollux certs`: a site's own authority, and the certificates of those who take part in it.
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use certs::{Authority, Name, Surveyed, Validity};
use clap::{Args, Subcommand};
use comfy_table::Table;
use serde::Serialize;

use crate::render::{self, Answer, Output};

#[derive(Debug, Subcommand)]
pub enum Certs {
    /// Make the authority of a new site. Its key stays where it is made.
    Init {
        #[command(flatten)]
        folder: Folder,
    },
    /// Make a certificate. Its folder goes to the machine that is to use it.
    Issue {
        /// Who it is for: node-1 for the node with that number, catalog, or a name of your own.
        name: Name,
        /// An address that it is reached by; may be given several times.
        #[arg(long, value_name = "ADDRESS")]
        address: Vec<String>,
        #[command(flatten)]
        folder: Folder,
    },
    /// Show what a folder holds. Exits with 1 when something in it cannot be used.
    Show {
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(Debug, Args)]
pub struct Folder {
    /// The folder of the authority and of what it issues.
    #[arg(long, value_name = "FOLDER")]
    pub dir: PathBuf,
}

pub fn run(command: &Certs, output: Output) -> Result<ExitCode> {
    let now = SystemTime::now();
    match command {
        Certs::Init { folder } => {
            Authority::make(Validity::of_authority(now))?.write(&folder.dir)?;
            show(&folder.dir, Some(Authority::FOLDER), output)
        }
        Certs::Issue { name, address, folder } => {
            let authority = Authority::open(&folder.dir)?;
            let issued = authority.issue(name, address, Validity::of_certificate(now))?;
            issued.write(&folder.dir)?;
            show(&folder.dir, Some(name.as_str()), output)
        }
        Certs::Show { folder } => show(&folder.dir, None, output),
    }
}

#[derive(Debug, Serialize)]
struct CertificateAnswer {
    folder: String,
    /// The authority has none.
    name: Option<String>,
    until: Option<String>,
    problem: Option<String>,
}

impl CertificateAnswer {
    fn new(found: &Surveyed) -> CertificateAnswer {
        let subject = found.subject.as_ref();
        let name = subject.and_then(|subject| subject.name.as_ref());
        let until = subject.and_then(|subject| subject.until);
        CertificateAnswer {
            folder: found.folder.display().to_string(),
            name: name.map(Name::to_string),
            until: until.map(|date| date.to_string()),
            problem: found.problem.as_ref().map(ToString::to_string),
        }
    }
}

impl Answer for Vec<CertificateAnswer> {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "UNTIL", "FOLDER", "STATE"]);
        for it in self {
            let name = it.name.clone().unwrap_or("-".into());
            let until = it.until.clone().unwrap_or("-".into());
            let state = it.problem.clone().unwrap_or("in order".into());
            table.add_row([name, until, it.folder.clone(), state]);
        }
        table
    }
}

/// All of a folder, or one of it.
fn show(folder: &Path, only: Option<&str>, output: Output) -> Result<ExitCode> {
    let mut found = certs::survey(folder)?;
    if let Some(only) = only {
        found.retain(|it| it.folder == folder.join(only));
    }
    let answers: Vec<CertificateAnswer> = found.iter().map(CertificateAnswer::new).collect();
    render::show(&answers, output)?;
    Ok(match found.iter().any(|it| it.problem.is_some()) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}
