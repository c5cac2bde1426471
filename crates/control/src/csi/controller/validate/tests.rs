use proto::csi::volume_capability::access_mode::Mode;
use tonic::Code;

use super::*;
use crate::csi::fixture::{VOLUME, map, mount, secrets, volume};

fn request() -> ValidateVolumeCapabilitiesRequest {
    ValidateVolumeCapabilitiesRequest {
        volume_id: VOLUME.into(),
        volume_context: map(&[("storage.kubernetes.io/csiProvisionerIdentity", "x")]),
        volume_capabilities: vec![mount(Mode::SingleNodeWriter)],
        parameters: map(&[
            ("replicas", "3"),
            ("blockSize", "4Ki"),
            ("compression", "on"),
            ("pools", "fast"),
            ("csi.storage.k8s.io/pvc/name", "claim"),
        ]),
        secrets: secrets(),
        mutable_parameters: map(&[("holdDeadline", "1m"), ("zvolWorkers", "0")]),
    }
}

fn there() -> Volume {
    let parameters = map(&[("pools", "fast")]).into_iter().collect();
    Volume { compression: "lz4".into(), parameters, ..volume() }
}

#[test]
fn what_fits_is_confirmed_as_it_was_asked() {
    let told = read(request()).unwrap().judge(&there());
    let confirmed = told.confirmed.unwrap();
    let ValidateVolumeCapabilitiesRequest {
        volume_context,
        volume_capabilities,
        parameters,
        mutable_parameters,
        ..
    } = request();
    let wanted = Confirmed { volume_context, volume_capabilities, parameters, mutable_parameters };
    assert_eq!(confirmed, wanted);
}

#[test]
fn what_does_not_fit_is_told_and_no_error() {
    type Change = fn(&mut ValidateVolumeCapabilitiesRequest);
    let rows: [(Change, &str); 10] = [
        (|it| it.volume_capabilities.push(mount(Mode::MultiNodeMultiWriter)), "access_mode"),
        (|it| it.volume_context = map(&[("mine", "x")]), "mine"),
        (|it| it.parameters = map(&[("replicas", "2")]), "replicas is 3, not 2"),
        (|it| it.parameters = map(&[("blockSize", "8Ki")]), "blockSize is 4096, not 8192"),
        (|it| it.parameters = map(&[("compression", "off")]), "compression is lz4, not off"),
        (|it| it.parameters = map(&[("pools", "slow")]), "pools is fast, not slow"),
        (|it| it.parameters = map(&[("group", "shop")]), "group is not given, not shop"),
        (|it| it.parameters = map(&[("replica", "3")]), "did you mean `replicas`"),
        (|it| it.mutable_parameters = map(&[("holdDeadline", "2m")]), "holdDeadline"),
        (|it| it.mutable_parameters = map(&[("blockSize", "4Ki")]), "fixed"),
    ];
    for (change, text) in rows {
        let mut request = request();
        change(&mut request);
        let told = read(request).unwrap().judge(&there());
        assert!(told.confirmed.is_none(), "{text}");
        assert!(told.message.contains(text), "{text}: {}", told.message);
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    type Change = fn(&mut ValidateVolumeCapabilitiesRequest);
    let rows: [(Change, Code); 5] = [
        (|it| it.volume_id.clear(), Code::InvalidArgument),
        (|it| it.volume_id = "nothing".into(), Code::NotFound),
        (|it| it.volume_capabilities.clear(), Code::InvalidArgument),
        (|it| it.volume_capabilities[0].access_type = None, Code::InvalidArgument),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument),
    ];
    for (change, code) in rows {
        let mut request = request();
        change(&mut request);
        let status = read(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
    }
}
