//! Secrets of requests: the names and passwords of CHAP, with the keys that open-iscsi has for them.
//!
//! Refusals name keys. No value of a secret is ever in a text.
use std::collections::{BTreeMap, HashMap};

use tonic::Status;

use super::status::invalid;
use crate::api::types::Credential;
use crate::catalog::limits::{SECRET_LEN, USER_LEN_MAX};
use crate::parameters::shown;

const USER: &str = "node.session.auth.username";
const PASSWORD: &str = "node.session.auth.password";
const MUTUAL_USER: &str = "node.session.auth.username_in";
const MUTUAL_PASSWORD: &str = "node.session.auth.password_in";
const KEYS: [&str; 4] = [USER, PASSWORD, MUTUAL_USER, MUTUAL_PASSWORD];

/// What the caller knows; nothing if it sent no secrets.
pub fn credential(secrets: HashMap<String, String>) -> Result<Option<Credential>, Status> {
    let mut secrets: BTreeMap<String, String> = secrets.into_iter().collect();
    if let Some(key) = secrets.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let known = KEYS.join(", ");
        return Err(invalid("secrets", format!("`{}` is none of: {known}", shown(key))));
    }
    let first = pair(&mut secrets, USER, PASSWORD)?;
    let mutual = pair(&mut secrets, MUTUAL_USER, MUTUAL_PASSWORD)?;
    let Some((user, secret)) = first else {
        return match mutual {
            Some(_) => Err(wrong(MUTUAL_USER, format!("it needs `{USER}` and `{PASSWORD}`"))),
            None => Ok(None),
        };
    };
    let (mutual_user, mutual_secret) = mutual.unwrap_or_default();
    // One secret for both ways lets a target be answered with its own words.
    if mutual_secret == secret {
        return Err(wrong(MUTUAL_PASSWORD, format!("it is the same as `{PASSWORD}`")));
    }
    Ok(Some(Credential { user, secret, mutual_user, mutual_secret }))
}

/// Both of them, or none.
fn pair(
    secrets: &mut BTreeMap<String, String>,
    user: &str,
    password: &str,
) -> Result<Option<(String, String)>, Status> {
    match (secrets.remove(user), secrets.remove(password)) {
        (None, None) => Ok(None),
        (Some(name), Some(secret)) => {
            fits(user, &name, 1, USER_LEN_MAX)?;
            fits(password, &secret, *SECRET_LEN.start(), *SECRET_LEN.end())?;
            Ok(Some((name, secret)))
        }
        (None, Some(_)) => Err(wrong(user, format!("it is missing beside `{password}`"))),
        (Some(_), None) => Err(wrong(password, format!("it is missing beside `{user}`"))),
    }
}

fn fits(key: &str, value: &str, least: usize, most: usize) -> Result<(), Status> {
    let fits = (least..=most).contains(&value.len()) && !value.contains(char::is_control);
    match fits {
        true => Ok(()),
        false => Err(wrong(key, format!("it has {least} to {most} bytes of text"))),
    }
}

fn wrong(key: &str, problem: String) -> Status {
    invalid(&format!("secrets[{key}]"), problem)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const GOOD: &str = "open sesame open";

    fn secrets(of: &[(&str, &str)]) -> HashMap<String, String> {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn secrets_become_a_credential() {
        assert_eq!(credential(HashMap::new()).unwrap(), None);
        let one = credential(secrets(&[(USER, "ann"), (PASSWORD, GOOD)])).unwrap().unwrap();
        let wanted =
            Credential { user: "ann".into(), secret: GOOD.into(), ..Credential::default() };
        assert!(one == wanted);
        let both = credential(secrets(&[
            (USER, "ann"),
            (PASSWORD, GOOD),
            (MUTUAL_USER, "target"),
            (MUTUAL_PASSWORD, "close sesame close"),
        ]));
        let wanted = Credential {
            mutual_user: "target".into(),
            mutual_secret: "close sesame close".into(),
            ..wanted
        };
        assert!(both.unwrap() == Some(wanted));
    }

    /// Protects from a secret in an error, which every log has.
    #[test]
    fn refusals_name_the_key_and_never_the_value() {
        let long = "sesame".repeat(50);
        for (given, key) in [
            (&[(USER, "ann")][..], PASSWORD),
            (&[(PASSWORD, GOOD)], USER),
            (&[(USER, "ann"), (PASSWORD, "sesame")], PASSWORD),
            (&[(USER, "ann"), (PASSWORD, &long)], PASSWORD),
            (&[(USER, ""), (PASSWORD, GOOD)], USER),
            (&[(USER, "ann"), (PASSWORD, "open\nsesame sesame")], PASSWORD),
            (&[(USER, "ann"), (PASSWORD, GOOD), (MUTUAL_USER, "t")], MUTUAL_PASSWORD),
            (&[(MUTUAL_USER, "t"), (MUTUAL_PASSWORD, GOOD)], MUTUAL_USER),
            (
                &[(USER, "a"), (PASSWORD, GOOD), (MUTUAL_USER, "t"), (MUTUAL_PASSWORD, GOOD)],
                MUTUAL_PASSWORD,
            ),
            (&[("password", GOOD)], "password"),
        ] {
            let status = credential(secrets(given)).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(key), "{key}: {status}");
            assert!(!status.message().contains("sesame"), "{status}");
        }
    }
}
