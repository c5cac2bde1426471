use proto::csi::volume_capability::access_mode::Mode;
use tonic::Code;

use super::*;
use crate::csi::fixture::{VOLUME, block, map, mount, secrets};

fn request(mode: Mode) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: VOLUME.into(),
        node_id: "worker-1".into(),
        volume_capability: Some(block(mode)),
        readonly: false,
        secrets: secrets(),
        volume_context: map(&[("storage.kubernetes.io/csiProvisionerIdentity", "x")]),
    }
}

#[test]
fn a_volume_is_attached_as_its_access_mode_says() {
    for (mode, read_only, shared) in [
        (Mode::SingleNodeWriter, false, false),
        (Mode::SingleNodeReaderOnly, true, false),
        (Mode::MultiNodeReaderOnly, true, true),
        (Mode::MultiNodeMultiWriter, false, true),
    ] {
        let (uid, attach) = attach(request(mode)).unwrap();
        assert_eq!((uid.as_str(), attach.host.as_str()), (VOLUME, "worker-1"));
        assert_eq!((attach.read_only, attach.shared), (read_only, shared), "{mode:?}");
        assert!(attach.credential.is_some());
    }
}

#[test]
fn what_cannot_be_published() {
    type Change = fn(&mut ControllerPublishVolumeRequest);
    let rows: [(Change, Code, &str); 6] = [
        (|it| it.volume_id.clear(), Code::InvalidArgument, "volume_id"),
        (|it| it.node_id.clear(), Code::InvalidArgument, "node_id"),
        (|it| it.volume_capability = None, Code::InvalidArgument, "volume_capability"),
        (
            |it| it.volume_capability = Some(mount(Mode::MultiNodeSingleWriter)),
            Code::InvalidArgument,
            "volume_capability",
        ),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument, "password"),
        (|it| it.volume_id = "nothing".into(), Code::NotFound, "nothing"),
    ];
    for (change, code, text) in rows {
        let mut request = request(Mode::SingleNodeWriter);
        change(&mut request);
        let status = attach(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
    // A field that is missing counts more than an id that leads nowhere.
    let mut request = request(Mode::SingleNodeWriter);
    (request.volume_id, request.node_id) = ("nothing".into(), String::new());
    assert_eq!(attach(request).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn a_host_that_only_reads_is_attached_as_one() {
    let request =
        ControllerPublishVolumeRequest { readonly: true, ..request(Mode::MultiNodeMultiWriter) };
    let (_, attach) = attach(request).unwrap();
    assert!(attach.read_only && attach.shared);
}

#[test]
fn a_volume_that_cannot_be_is_attached_nowhere() {
    let request = |volume_id: &str, node_id: &str| ControllerUnpublishVolumeRequest {
        volume_id: volume_id.into(),
        node_id: node_id.into(),
        secrets: secrets(),
    };
    let (uid, from) = detach(request(VOLUME, "worker-1")).unwrap().unwrap();
    assert_eq!((uid.as_str(), from.host.as_str()), (VOLUME, "worker-1"));
    assert!(from.credential.is_some());
    let (_, from) = detach(request(VOLUME, "")).unwrap().unwrap();
    assert!(from.host.is_empty(), "from all of them");
    assert!(detach(request("nothing", "worker-1")).unwrap().is_none());
    assert_eq!(detach(request("", "worker-1")).unwrap_err().code(), Code::InvalidArgument);
}
