//! Protects from files that are half there, that others can read, or that a peer would refuse.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use crate::scratch::{DAY, Scratch, authority, expired, issue};
use crate::{Authority, Identity, IssueError, LoadError, Name, Validity, WriteError};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

fn load_error(folder: &Path) -> (LoadError, String) {
    let error = Identity::load(folder).expect_err("it must be refused");
    let text = error.to_string();
    (error, text)
}

#[test]
fn a_folder_is_written_once_and_keys_are_private() {
    let scratch = Scratch::new();
    let authority = authority();
    authority.write(scratch.path()).unwrap();
    let folder = issue(&authority, &Name::node(1), scratch.path());
    assert_eq!(mode(&scratch.path().join("ca/ca.key")), 0o600);
    assert_eq!(mode(&folder.join("tls.key")), 0o600);
    assert_eq!(mode(&folder), 0o700);

    let before = fs::read(folder.join("tls.key")).unwrap();
    let valid = Validity::of_certificate(SystemTime::now());
    let again = authority.issue(&Name::node(1), &[], valid).unwrap().write(scratch.path());
    assert!(matches!(again, Err(WriteError::Exists { path }) if path == folder));
    assert!(matches!(authority.write(scratch.path()), Err(WriteError::Exists { .. })));
    assert_eq!(fs::read(folder.join("tls.key")).unwrap(), before);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn an_authority_goes_on_after_it_was_opened_again() {
    let scratch = Scratch::new();
    authority().write(scratch.path()).unwrap();
    let opened = Authority::open(scratch.path()).unwrap();
    let folder = issue(&opened, &Name::catalog(), scratch.path());
    assert_eq!(Identity::load(&folder).unwrap().name(), &Name::catalog());
}

#[test]
fn an_authority_whose_files_are_of_two_is_noticed() {
    let scratch = Scratch::new();
    let (one, other) = (Scratch::new(), Scratch::new());
    authority().write(one.path()).unwrap();
    authority().write(other.path()).unwrap();
    fs::create_dir(scratch.path().join("ca")).unwrap();
    fs::copy(one.path().join("ca/ca.crt"), scratch.path().join("ca/ca.crt")).unwrap();
    fs::copy(other.path().join("ca/ca.key"), scratch.path().join("ca/ca.key")).unwrap();
    let mixed = Authority::open(scratch.path()).unwrap();
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = mixed.issue(&Name::node(1), &[], valid);
    assert!(matches!(issued, Err(IssueError::WrongAuthority { .. })));
}

#[test]
fn what_is_asked_for_has_to_make_sense() {
    let authority = authority();
    let valid = Validity::of_certificate(SystemTime::now());
    let issue = |name: &str, address: &str| {
        let name: Name = name.parse().unwrap();
        authority.issue(&name, &[address.to_string()], valid).err()
    };
    assert!(issue("node-1", "fd00::1").is_none());
    assert!(issue("node-1", "storage-1.example.org").is_none());
    for bad in ["", "a b", "10.0.0.1:70", "ä.org"] {
        assert!(matches!(issue("node-1", bad), Some(IssueError::BadAddress { .. })), "{bad}");
    }
    let zone = issue("node-1", "node-2.Pollux");
    assert!(matches!(zone, Some(IssueError::AddressInZone { .. })), "it would be another's name");
    assert!(matches!(issue("ca", "10.0.0.1"), Some(IssueError::Reserved { .. })));
}

#[test]
fn an_authority_that_expired_issues_nothing_and_nothing_outlives_it() {
    let old = Authority::make(expired()).unwrap();
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = old.issue(&Name::node(1), &[], valid);
    assert!(matches!(issued, Err(IssueError::AuthorityExpired { .. })));

    let now = SystemTime::now();
    let short = Authority::make(Validity { from: now - DAY, until: now + 3 * DAY }).unwrap();
    let scratch = Scratch::new();
    let folder = issue(&short, &Name::node(1), scratch.path());
    let text = fs::read(folder.join("tls.crt")).unwrap();
    let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(&text).unwrap();
    assert_eq!(crate::inspect(&certificate).until, crate::inspect(short.certificate()).until);
}

#[test]
fn a_file_that_is_missing_or_something_else_is_named() {
    let scratch = Scratch::new();
    let folder = scratch.issued(&Name::node(1));
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        let kept = fs::read(folder.join(file)).unwrap();
        fs::write(folder.join(file), "nothing").unwrap();
        let (error, text) = load_error(&folder);
        assert!(matches!(error, LoadError::NotPem { .. }) && text.contains(file), "{text}");
        fs::write(folder.join(file), vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(load_error(&folder).0, LoadError::TooLarge { .. }));
        fs::remove_file(folder.join(file)).unwrap();
        let (error, text) = load_error(&folder);
        assert!(matches!(error, LoadError::Missing { .. }) && text.contains(file), "{text}");
        fs::write(folder.join(file), kept).unwrap();
        fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    Identity::load(&folder).expect("everything is back");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.issued(&Name::node(1));
    let key = folder.join("tls.key");
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let (error, text) = load_error(&folder);
        assert!(matches!(error, LoadError::Exposed { .. }), "{text}");
        assert!(text.contains("chmod 600"), "{text}");
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    Identity::load(&folder).expect("nobody else can read it");
}

#[test]
fn files_of_two_participants_do_not_go_together() {
    let scratch = Scratch::new();
    let authority = authority();
    let one = issue(&authority, &Name::node(1), scratch.path());
    let two = issue(&authority, &Name::node(2), scratch.path());
    fs::copy(one.join("tls.key"), two.join("tls.key")).unwrap();
    let (error, text) = load_error(&two);
    assert!(matches!(error, LoadError::Unpaired { .. }), "{text}");

    let other = Scratch::new();
    let stranger = other.issued(&Name::node(3));
    fs::copy(one.join("ca.crt"), stranger.join("ca.crt")).unwrap();
    let (error, text) = load_error(&stranger);
    assert!(matches!(error, LoadError::OtherAuthority { .. }), "{text}");
}

#[test]
fn a_certificate_is_used_only_in_its_time() {
    let scratch = Scratch::new();
    let authority = authority();
    let old = authority.issue(&Name::node(1), &[], expired()).unwrap().write(scratch.path());
    let (error, text) = load_error(&old.unwrap());
    assert!(matches!(error, LoadError::Expired { .. }), "{text}");
    assert!(text.contains("certs issue"), "{text}");

    let now = SystemTime::now();
    let later = Validity { from: now + 2 * DAY, until: now + 9 * DAY };
    let early = authority.issue(&Name::node(2), &[], later).unwrap().write(scratch.path());
    let (error, text) = load_error(&early.unwrap());
    assert!(matches!(error, LoadError::NotYetValid { .. }), "{text}");
}

/// Protects from an authority that was put in the place of a participant.
#[test]
fn an_authority_is_no_participant() {
    let scratch = Scratch::new();
    authority().write(scratch.path()).unwrap();
    let ca = scratch.path().join("ca");
    fs::copy(ca.join("ca.crt"), ca.join("tls.crt")).unwrap();
    fs::copy(ca.join("ca.key"), ca.join("tls.key")).unwrap();
    assert!(matches!(load_error(&ca).0, LoadError::Unusable { .. }));
}

#[test]
fn a_survey_tells_what_is_there_and_what_is_wrong_with_it() {
    let scratch = Scratch::new();
    let authority = authority();
    authority.write(scratch.path()).unwrap();
    issue(&authority, &Name::node(1), scratch.path());
    authority.issue(&Name::node(2), &[], expired()).unwrap().write(scratch.path()).unwrap();
    fs::create_dir(scratch.path().join(".node-3.new-1")).unwrap();
    fs::create_dir(scratch.path().join("empty")).unwrap();
    let found = crate::survey(scratch.path()).unwrap();
    let names = found.iter().map(|it| it.folder.file_name().unwrap().to_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["ca", "empty", "node-1", "node-2"]);
    let problems: Vec<bool> = found.iter().map(|it| it.problem.is_some()).collect();
    assert_eq!(problems, [false, true, false, true]);
    let name = found[3].subject.as_ref().and_then(|subject| subject.name.clone());
    assert_eq!(name, Some(Name::node(2)), "what expired is still told apart");
}
