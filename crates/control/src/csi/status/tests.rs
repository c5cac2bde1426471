use std::io;
use std::path::PathBuf;

use attach::filesystem::Kind;
use attach::record::RecordError;

use super::*;

#[test]
fn every_code_of_the_api_has_one_of_grpc() {
    for (of_api, of_grpc) in [
        (api::Code::Invalid, Code::InvalidArgument),
        (api::Code::NotFound, Code::NotFound),
        (api::Code::AlreadyExists, Code::AlreadyExists),
        (api::Code::Busy, Code::Aborted),
        (api::Code::OutOfSpace, Code::ResourceExhausted),
        (api::Code::OutOfRange, Code::OutOfRange),
        (api::Code::InUse, Code::FailedPrecondition),
        (api::Code::Unavailable, Code::Unavailable),
        (api::Code::Unauthenticated, Code::Unauthenticated),
        (api::Code::Forbidden, Code::PermissionDenied),
        (api::Code::Internal, Code::Internal),
    ] {
        let status = refused(ApiError::new(of_api, "because"));
        assert_eq!(status.code(), of_grpc, "{of_api:?}");
        assert!(status.message().contains("because"), "{status}");
    }
}

#[test]
fn a_refused_token_is_ours_and_a_refused_credential_the_callers() {
    let error = ApiError::new(api::Code::Unauthenticated, "no");
    assert!(refused(error.clone()).message().contains("token of this driver"));
    let error = ApiError { field: Some("credential".into()), ..error };
    let status = refused(error);
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no"));
}

#[test]
fn what_is_missing_is_no_refusal_where_nothing_is_wanted() {
    let missing = ApiError::not_found("volume", "x");
    assert_eq!(unless_missing::<()>(Err(missing)).unwrap(), None);
    assert_eq!(unless_missing(Ok(1)).unwrap(), Some(1));
    let busy = unless_missing::<()>(Err(ApiError::busy("volume", "x"))).unwrap_err();
    assert_eq!(busy.code(), Code::Aborted);
}

/// What an orchestrator does next depends on the code, and what a person does on the text.
#[test]
fn every_trouble_of_a_machine_has_a_code() {
    let at = || PathBuf::from("/at");
    let error = || io::Error::other("because");
    let uid = || "a01".to_owned();
    let damaged =
        FileSystemError::Damaged { device: at(), kind: Kind::Ext4, words: "because".into() };
    use Code::{Aborted, AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound};
    for (error, code, word) in [
        (HostError::Busy { uid: uid() }, Aborted, "a01"),
        (PermitError::Busy("v is busy".into()).into(), Aborted, "v is busy"),
        (PermitError::Refused("it has data".into()).into(), FailedPrecondition, "data"),
        (PermitError::Unavailable("it is away".into()).into(), Code::Unavailable, "away"),
        (PermitError::Failed("because".into()).into(), Internal, "because"),
        (HostError::Path { field: "p", path: at(), problem: "no" }, InvalidArgument, "/at"),
        (HostError::NoWay("no module".into()), FailedPrecondition, "no module"),
        (HostError::Start("because".into()), Code::Unavailable, "because"),
        (
            HostError::Lost { volume: "v".into(), reason: "because".into(), used: vec![at()] },
            FailedPrecondition,
            "/at",
        ),
        (HostError::Used { used: vec![at(), at()] }, FailedPrecondition, "/at, /at"),
        (HostError::Worked { path: at() }, FailedPrecondition, "/at"),
        (
            HostError::Unwritten { volume: "db".into(), device: at(), reason: "because".into() },
            FailedPrecondition,
            "pollux volume unmount db --force",
        ),
        (HostError::Order(OrderError::Slow), Aborted, "ask again"),
        (HostError::Order(OrderError::NotDurable("wait".into())), Code::Unavailable, "wait"),
        (
            WayError::NotDurable { device: at(), reason: "because".into() }.into(),
            Code::Unavailable,
            "ask again",
        ),
        (HostError::NotEmpty { path: at() }, FailedPrecondition, "/at"),
        (HostError::Options { kind: "xfs", options: "x=y".into() }, InvalidArgument, "x=y"),
        (HostError::Occupied { path: at(), by: "tmpfs".into() }, FailedPrecondition, "tmpfs"),
        (HostError::Different { path: at(), difference: "how" }, AlreadyExists, "how"),
        (HostError::NotAttached { uid: uid() }, NotFound, "a01"),
        (HostError::NotStaged { path: at() }, FailedPrecondition, "/at"),
        (HostError::NotThere { path: at() }, NotFound, "/at"),
        (HostError::SingleWriter { path: at() }, FailedPrecondition, "/at"),
        (HostError::Foreign { found: "dos".into(), wanted: "xfs" }, FailedPrecondition, "dos"),
        (HostError::BlankReadOnly, FailedPrecondition, "nothing to mount"),
        (HostError::Twin { uuid: "u-1".into(), why: "no".into() }, FailedPrecondition, "u-1"),
        (HostError::System { what: "it".into(), error: error() }, Internal, "because"),
        (HostError::FileSystem(damaged), FailedPrecondition, "not formatted over"),
        (
            HostError::FileSystem(FileSystemError::Device { device: at(), error: error() }),
            Internal,
            "/at",
        ),
        (
            HostError::FileSystem(FileSystemError::Device {
                device: at(),
                error: io::ErrorKind::ResourceBusy.into(),
            }),
            Aborted,
            "/at",
        ),
        (HostError::Record(RecordError::File { path: at(), error: error() }), Internal, "/at"),
        (HostError::Order(OrderError::Failed("because".into())), Internal, "because"),
        (HostError::Way(WayError::System { what: "it", error: error() }), Internal, "because"),
    ] {
        let shown = format!("{error:?}");
        let status = unable(error);
        assert_eq!(status.code(), code, "{shown}");
        assert!(status.message().contains(word), "{shown}: {status}");
    }
}
