use super::*;

fn offered(offers: &[(&str, &str)], is_discovery: bool) -> (String, Params) {
    let (mut negotiation, mut answers) = (Negotiation::default(), Text::default());
    for offer in offers {
        let limits = Limits::default();
        negotiation.offer(*offer, is_discovery, &limits, &mut answers).expect("it is answered");
    }
    let answers = String::from_utf8(answers.into_bytes()).expect("text");
    (answers.trim_end_matches('\0').replace('\0', " "), negotiation.settled())
}

fn answer(key: &str, value: &str) -> String {
    let (answers, _) = offered(&[(key, value)], false);
    answers.strip_prefix(&format!("{key}=")).unwrap_or(&answers).into()
}

#[test]
fn every_key_is_answered_by_its_rule() {
    for (key, value, expected) in [
        ("HeaderDigest", "CRC32C,None", "CRC32C"),
        ("HeaderDigest", "None,CRC32C", "None"),
        ("DataDigest", "Odd,CRC32C", "CRC32C"),
        ("DataDigest", "Odd", "Reject"),
        ("MaxConnections", "8", "1"),
        ("MaxConnections", "0", "Reject"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Yes", "Yes"),
        ("InitialR2T", "yes", "Reject"),
        ("ImmediateData", "Yes", "Yes"),
        ("ImmediateData", "No", "No"),
        ("MaxBurstLength", "16776192", "1048576"),
        ("MaxBurstLength", "4096", "4096"),
        ("MaxBurstLength", "511", "Reject"),
        ("MaxBurstLength", "16777216", "Reject"),
        ("FirstBurstLength", "0x1000", "4096"),
        ("DefaultTime2Wait", "2", "2"),
        ("DefaultTime2Wait", "0", "0"),
        ("DefaultTime2Wait", "3601", "Reject"),
        ("DefaultTime2Retain", "20", "0"),
        ("MaxOutstandingR2T", "1", "1"),
        ("MaxOutstandingR2T", "65535", "4"),
        ("DataPDUInOrder", "No", "Yes"),
        ("DataSequenceInOrder", "No", "Yes"),
        ("ErrorRecoveryLevel", "2", "0"),
        ("ErrorRecoveryLevel", "3", "Reject"),
        ("IFMarker", "Yes", "No"),
        ("OFMarker", "No", "No"),
        ("IFMarkInt", "2048~8192", "Irrelevant"),
        ("iSCSIProtocolLevel", "2", "1"),
        ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
        ("X-com.example.thing", "1", "NotUnderstood"),
        ("RDMAExtensions", "Yes", "NotUnderstood"),
        // Words that are answers are not answered.
        ("InitialR2T", "Irrelevant", ""),
        ("X-com.example.thing", "NotUnderstood", ""),
    ] {
        assert_eq!(answer(key, value), expected, "{key}={value}");
    }
}

#[test]
fn what_was_agreed_holds() {
    let (_, params) = offered(
        &[
            ("HeaderDigest", "CRC32C"),
            ("DataDigest", "None"),
            ("InitialR2T", "No"),
            ("ImmediateData", "No"),
            ("MaxRecvDataSegmentLength", "65536"),
            ("FirstBurstLength", "262144"),
            ("MaxBurstLength", "8192"),
            ("MaxOutstandingR2T", "2"),
            ("DefaultTime2Wait", "5"),
        ],
        false,
    );
    let expected = Params {
        header_digest: true,
        data_digest: false,
        initial_r2t: false,
        immediate_data: false,
        burst: 8192,
        first_burst: 8192,
        r2ts: 2,
        segment_max: 65_536,
        time2wait: 5,
    };
    assert_eq!(params, expected);
}

#[test]
fn what_is_not_offered_is_as_the_standard_says() {
    let (answers, params) = offered(&[], false);
    assert_eq!((answers.as_str(), params), ("", Params::default()));
}

#[test]
fn a_declaration_is_not_answered_unless_it_cannot_be() {
    assert_eq!(answer("MaxRecvDataSegmentLength", "262144"), "");
    assert_eq!(answer("MaxRecvDataSegmentLength", "511"), "Reject");
    let (_, params) = offered(&[("MaxRecvDataSegmentLength", "511")], false);
    assert_eq!(params.segment_max, 8192);
}

#[test]
fn a_discovery_session_has_no_use_for_keys_of_commands() {
    let (answers, _) = offered(
        &[("InitialR2T", "No"), ("MaxConnections", "1"), ("ErrorRecoveryLevel", "0")],
        true,
    );
    assert_eq!(answers, "InitialR2T=Irrelevant MaxConnections=Irrelevant ErrorRecoveryLevel=0");
}

#[test]
fn a_key_is_negotiated_once_and_where_it_belongs() {
    let limits = Limits::default();
    let (mut negotiation, mut answers) = (Negotiation::default(), Text::default());
    let mut offer = |key, value| negotiation.offer((key, value), false, &limits, &mut answers);
    offer("InitialR2T", "No").expect("the first time");
    assert_eq!(offer("InitialR2T", "No"), Err(LoginError::Repeated { key: "InitialR2T" }));
    for key in ["SendTargets", "TargetAddress", "CHAP_N", "AuthMethod"] {
        assert_eq!(offer(key, "x"), Err(LoginError::OutOfPlace { key: key.into() }));
    }
}

#[test]
fn our_segment_length_is_declared_once() {
    let (mut negotiation, mut answers) = (Negotiation::default(), Text::default());
    negotiation.declare(&Limits::default(), &mut answers);
    negotiation.declare(&Limits::default(), &mut answers);
    assert_eq!(answers.bytes(), b"MaxRecvDataSegmentLength=262144\0");
}
