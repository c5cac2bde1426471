//! Which site is meant, and who asks it.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use certs::Trust;
use control::api::Endpoint;
use control::csi;

use crate::cli::site::ApiArgs;
use crate::local::Folder;

const USUAL: &str = "127.0.0.1:7470";
const TOKEN: &str = "POLLUX_TOKEN";

pub fn endpoint(args: &ApiArgs, env: impl Fn(&str) -> Option<String>) -> Result<Endpoint> {
    let ApiArgs { api, token_file, ca, site } = args;
    let token = env(TOKEN).filter(|token| !token.is_empty());
    if let Some(folder) = site {
        return of_folder(&Folder::at(folder));
    }
    let nothing_said = api.is_none() && token_file.is_none() && ca.is_none() && token.is_none();
    if nothing_said && let Some(folder) = Folder::usual().filter(|it| it.token().exists()) {
        return of_folder(&folder);
    }
    let address = api.clone().unwrap_or_else(|| USUAL.into());
    let token = match (token_file, token) {
        (Some(file), _) => read_token(file)?,
        (None, Some(token)) => checked(&token).context(TOKEN)?,
        (None, None) => bail!(
            "no token is given to ask {address} with: start a site of your own with `pollux up`, or give \
             --token-file or {TOKEN} (`pollux token create` makes one)"
        ),
    };
    let trust = ca.as_deref().map(Trust::load).transpose()?;
    Ok(Endpoint { address, token, trust })
}

/// The site that `pollux up` runs, with the token of its owner.
pub fn of_folder(folder: &Folder) -> Result<Endpoint> {
    let shown = folder.path().display();
    let found =
        folder.read()?.with_context(|| format!("{shown}: `pollux up` made no site here"))?;
    Ok(Endpoint {
        address: found.api.to_string(),
        token: read_token(&folder.token())?,
        trust: Some(Trust::load(&folder.authority())?),
    })
}

/// The same as files, for a process that reads them itself, later and again.
pub fn site(args: &ApiArgs) -> Result<(csi::Site, Option<PathBuf>)> {
    let absolute = |path: &Path| std::path::absolute(path).context("where this is");
    let nothing_said = args.api.is_none() && args.token_file.is_none() && args.ca.is_none();
    let folder = args
        .site
        .as_deref()
        .map(Folder::at)
        .or_else(|| Folder::usual().filter(|it| nothing_said && it.token().exists()));
    let (api, token_file, ca) = match folder {
        Some(folder) => {
            let api = of_folder(&folder)?.address;
            (api, absolute(&folder.token())?, Some(absolute(&folder.authority())?))
        }
        None => {
            let file = args.token_file.as_deref().context(
                "give --token-file: whoever keeps the volume attached reads the token from there",
            )?;
            let ca = args.ca.as_deref().map(absolute).transpose()?;
            (args.api.clone().unwrap_or_else(|| USUAL.into()), absolute(file)?, ca)
        }
    };
    let trust = ca.as_deref().map(Trust::load).transpose()?;
    Ok((csi::Site { api, token_file, trust }, ca))
}

fn read_token(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("the token in {} cannot be read", path.display()))?;
    checked(&text).with_context(|| path.display().to_string())
}

/// It goes into a line of HTTP.
fn checked(text: &str) -> Result<String> {
    let token = text.trim();
    let fits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(fits, "that is no token: it has to be one word, as `pollux token create` shows it");
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use pollux::proof::Scratch;

    use super::*;
    use crate::local::Description;

    fn args(api: Option<&str>, token_file: Option<&Path>) -> ApiArgs {
        let (api, token_file) = (api.map(Into::into), token_file.map(Into::into));
        ApiArgs { api, token_file, ..ApiArgs::default() }
    }

    #[test]
    fn what_is_said_counts_and_a_file_counts_before_the_environment() {
        let scratch = Scratch::new("find").unwrap();
        let file = scratch.file("token");
        fs::write(&file, "of-the-file\n").unwrap();
        let env = |name: &str| (name == TOKEN).then(|| "of-the-environment".to_owned());
        let found = endpoint(&args(None, None), env).unwrap();
        assert_eq!((found.address.as_str(), found.token.as_str()), (USUAL, "of-the-environment"));
        let found = endpoint(&args(Some("a:1"), Some(&file)), env).unwrap();
        assert_eq!((found.address.as_str(), found.token.as_str()), ("a:1", "of-the-file"));
    }

    #[test]
    fn a_token_that_is_missing_or_none_is_told() {
        let none = |_: &str| None;
        let error = endpoint(&args(Some("a:1"), None), none).unwrap_err().to_string();
        assert!(error.contains("a:1") && error.contains("pollux token create"), "{error}");
        let error = endpoint(&args(Some("a:1"), None), |_| Some("two words".into())).unwrap_err();
        assert!(format!("{error:#}").contains("POLLUX_TOKEN: that is no token"), "{error:#}");
    }

    #[test]
    fn the_folder_of_a_site_tells_everything() {
        let scratch = Scratch::new("find").unwrap();
        let folder = Folder::at(scratch.path());
        let args = ApiArgs { site: Some(scratch.path().into()), ..ApiArgs::default() };
        let error = endpoint(&args, |_| None).unwrap_err().to_string();
        assert!(error.contains("pollux up"), "{error}");
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        folder.write(&Description::new(at(1), at(2), Vec::new())).unwrap();
        fs::write(folder.token(), "secret\n").unwrap();
        let authority =
            certs::Authority::make(certs::Validity::of_authority(std::time::SystemTime::now()));
        authority.unwrap().write(&folder.certs()).unwrap();
        let found = endpoint(&args, |_| None).unwrap();
        assert_eq!((found.address.as_str(), found.token.as_str()), ("127.0.0.1:2", "secret"));
        assert!(found.trust.is_some());
    }
}
