use super::*;

const SECRET: &str = "twelve-bytes-or-more";

fn access(mutual: bool) -> Access {
    let mutual = mutual.then(|| ("portal".into(), Secret::new("another-long-secret")));
    Access { chap: Some(Chap { user: "client".into(), secret: Secret::new(SECRET), mutual }) }
}

fn random() -> Random {
    let mut next = 0u8;
    Box::new(move |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(31).wrapping_add(7);
            *byte = next;
        }
    })
}

/// Steps and gives the answers.
fn step(
    auth: &mut Auth,
    access: &Access,
    pairs: &[Pair<'_>],
) -> Result<Vec<(String, String)>, LoginError> {
    let mut answers = Text::default();
    auth.step(access, pairs, &mut random(), &mut answers)?;
    let pairs = text::parse(answers.bytes()).expect("we write text");
    Ok(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

fn challenged(access: &Access) -> (Auth, u8, Vec<u8>) {
    let mut auth = Auth::Open;
    let answers = step(&mut auth, access, &[("AuthMethod", "CHAP,None")]).expect("it is CHAP");
    assert_eq!(answers, [("AuthMethod".into(), "CHAP".into())]);
    assert!(!auth.is_enough(access));
    let answers = step(&mut auth, access, &[("CHAP_A", "7,5")]).expect("it is MD5");
    assert_eq!(answers[0], ("CHAP_A".into(), "5".into()));
    let id = answers[1].1.parse().expect("a number");
    let challenge = text::binary(&answers[2].1, 64).expect("bytes");
    (auth, id, challenge)
}

#[test]
fn a_known_response() {
    // Computed with another implementation of MD5: id 0x17, secret "secret1234567", and a
    // challenge of the bytes 0 to 15.
    let challenge: Vec<u8> = (0..16).collect();
    let response = response_to(0x17, &Secret::new("secret1234567"), &challenge);
    assert_eq!(text::to_hex(&response), KNOWN);
}

const KNOWN: &str = "0xc0b6eab21a9c73270c468d087c7243f8";

#[test]
fn whoever_knows_the_secret_comes_in() {
    let access = access(false);
    let (mut auth, id, challenge) = challenged(&access);
    let response = text::to_hex(&response_to(id, &Secret::new(SECRET), &challenge));
    let pairs = [("CHAP_N", "client"), ("CHAP_R", response.as_str())];
    assert_eq!(step(&mut auth, &access, &pairs), Ok(vec![]));
    assert!(auth.is_enough(&access));
}

#[test]
fn whoever_does_not_stays_out() {
    let access = access(false);
    let wrong = text::to_hex(&[7; 16]);
    let (_, id, challenge) = challenged(&access);
    let right = text::to_hex(&response_to(id, &Secret::new(SECRET), &challenge));
    for (pairs, error) in [
        (vec![("CHAP_N", "client"), ("CHAP_R", &wrong)], LoginError::WrongSecret),
        (vec![("CHAP_N", "clienT"), ("CHAP_R", &right)], LoginError::WrongSecret),
        (vec![("CHAP_N", ""), ("CHAP_R", &right)], LoginError::WrongSecret),
        (vec![("CHAP_N", "client"), ("CHAP_R", &right[..30])], LoginError::WrongSecret),
        (vec![("CHAP_N", "client"), ("CHAP_R", "0x")], LoginError::WrongSecret),
        (vec![("CHAP_N", "client"), ("CHAP_R", "0xzz")], LoginError::BadValue { key: "CHAP_R" }),
        (vec![("CHAP_R", &right)], LoginError::Missing { key: "CHAP_N" }),
        (vec![("CHAP_N", "client")], LoginError::Missing { key: "CHAP_R" }),
        (vec![("CHAP_A", "5")], LoginError::OutOfPlace { key: "CHAP_A".into() }),
    ] {
        let (mut auth, ..) = challenged(&access);
        assert_eq!(step(&mut auth, &access, &pairs), Err(error), "{pairs:?}");
        assert!(!auth.is_enough(&access));
    }
}

#[test]
fn we_show_who_we_are_to_those_who_ask() {
    let access = access(true);
    let (mut auth, id, challenge) = challenged(&access);
    let response = text::to_hex(&response_to(id, &Secret::new(SECRET), &challenge));
    let pairs =
        [("CHAP_N", "client"), ("CHAP_R", &response), ("CHAP_I", "9"), ("CHAP_C", "0b////")];
    let ours = response_to(9, &Secret::new("another-long-secret"), &[0xff; 3]);
    let expected = [("CHAP_N".into(), "portal".into()), ("CHAP_R".into(), text::to_hex(&ours))];
    assert_eq!(step(&mut auth, &access, &pairs).expect("it is right"), expected);
}

#[test]
fn a_challenge_that_cannot_be_answered_ends_the_login() {
    let with = |mutual: bool, id: &str, challenge: Option<&str>| {
        let access = access(mutual);
        let (mut auth, our_id, ours) = challenged(&access);
        let response = text::to_hex(&response_to(our_id, &Secret::new(SECRET), &ours));
        let ours = text::to_hex(&ours);
        let mut pairs = vec![("CHAP_N", "client"), ("CHAP_R", response.as_str()), ("CHAP_I", id)];
        pairs.extend(challenge.map(|challenge| {
            ("CHAP_C", if challenge == "ours" { ours.as_str() } else { challenge })
        }));
        step(&mut auth, &access, &pairs)
    };
    assert_eq!(with(true, "1", Some("ours")), Err(LoginError::Reflected));
    assert_eq!(with(false, "1", Some("0x01")), Err(LoginError::NoMutualSecret));
    assert_eq!(with(true, "1", None), Err(LoginError::Missing { key: "CHAP_C" }));
    assert_eq!(with(true, "256", Some("0x01")), Err(LoginError::BadValue { key: "CHAP_I" }));
    assert_eq!(with(true, "1", Some("0x")), Err(LoginError::BadValue { key: "CHAP_C" }));
    let long = text::to_hex(&[1; 1025]);
    assert_eq!(with(true, "1", Some(&long)), Err(LoginError::BadValue { key: "CHAP_C" }));
}

#[test]
fn only_what_both_can_do_is_done() {
    let open = Access::default();
    let closed = access(false);
    let offer =
        |access: &Access, method: &str| step(&mut Auth::Open, access, &[("AuthMethod", method)]);
    assert_eq!(offer(&open, "CHAP,None"), Ok(vec![("AuthMethod".into(), "None".into())]));
    assert_eq!(offer(&open, "CHAP"), Err(LoginError::NoCommonMethod));
    assert_eq!(offer(&closed, "None"), Err(LoginError::NoCommonMethod));
    assert_eq!(offer(&closed, "KRB5,CHAP"), Ok(vec![("AuthMethod".into(), "CHAP".into())]));
    for odd in ["56", "", "7,8", "5 "] {
        let result = step(&mut Auth::Method, &closed, &[("CHAP_A", odd)]);
        assert_eq!(result, Err(LoginError::NoCommonMethod), "{odd}");
    }
    assert!(Auth::Open.is_enough(&open));
    assert!(!Auth::Open.is_enough(&closed));
}

#[test]
fn a_secret_is_not_shown() {
    assert!(!format!("{:?}", access(true)).contains("secret-"));
    assert_eq!(format!("{:?}", Secret::new("hidden")), "Secret");
}
