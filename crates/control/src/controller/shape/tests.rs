//! Protects from volumes that nobody asked for.
use super::*;

const GIB: u64 = 1 << 30;

fn code<T: std::fmt::Debug>(answer: Answer<T>) -> Code {
    answer.expect_err("it is refused").code
}

#[test]
fn sizes_are_whole_blocks_within_their_range() {
    assert_eq!(sized(0, None, 4096, GIB), Ok(GIB));
    assert_eq!(sized(0, Some(5000), 4096, GIB), Ok(4096));
    assert_eq!(sized(1, None, 4096, GIB), Ok(4096));
    assert_eq!(sized(4097, Some(8192), 512, GIB), Ok(8192));
    assert_eq!(sized(4096, Some(4096), 4096, GIB), Ok(4096));
    assert_eq!(code(sized(4097, Some(5000), 4096, GIB)), Code::OutOfRange);
    assert_eq!(code(sized(0, Some(100), 4096, GIB)), Code::OutOfRange);
    assert_eq!(code(sized(5000, Some(4096), 4096, GIB)), Code::Invalid);
    assert_eq!(code(sized(u64::MAX, None, 4096, GIB)), Code::OutOfRange);
    assert_eq!(code(sized(VOLUME_MAX + 1, None, 4096, GIB)), Code::OutOfRange);
}

fn asked() -> NewVolume {
    NewVolume { name: "db".into(), size: 5000, ..NewVolume::default() }
}

fn field(asked: NewVolume) -> String {
    Shape::of(asked).expect_err("it is refused").field.expect("it names the field")
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(field(NewVolume { name: String::new(), ..asked() }), "name");
    assert_eq!(field(NewVolume { block_size: Some(1000), ..asked() }), "blockSize");
    assert_eq!(field(NewVolume { replicas: Some(0), ..asked() }), "replicas");
    assert_eq!(field(NewVolume { replicas: Some(8), ..asked() }), "replicas");
    let chap = |user: &str, secret: &str| {
        Some(Credential { user: user.into(), secret: secret.into(), ..Credential::default() })
    };
    assert_eq!(field(NewVolume { chap: chap("me", "short"), ..asked() }), "chap.secret");
    assert_eq!(field(NewVolume { chap: chap("", "long enough it is"), ..asked() }), "chap.user");
}

#[test]
fn the_same_request_is_recognised_and_another_one_too() {
    let shape = Shape::of(asked()).expect("it is in order");
    let found = shape.volume(vec![1; 16]);
    assert_eq!(found.size, 8192);
    assert_eq!(shape.differs_from(&found), None);
    let other = |asked: NewVolume| Shape::of(asked).expect("in order").differs_from(&found);
    assert_eq!(other(NewVolume { size: 0, ..asked() }), None, "any size will do");
    assert_eq!(other(NewVolume { size: 6000, size_limit: Some(9000), ..asked() }), None);
    assert_eq!(other(NewVolume { size: 9000, ..asked() }), Some("size"));
    assert_eq!(other(NewVolume { size: 100, size_limit: Some(4096), ..asked() }), Some("size"));
    assert_eq!(other(NewVolume { block_size: Some(512), ..asked() }), Some("blockSize"));
    assert_eq!(
        other(NewVolume { compression: Some("lz4".into()), ..asked() }),
        Some("compression")
    );
    assert_eq!(other(NewVolume { replicas: Some(1), ..asked() }), None, "that can be changed");
}

#[test]
fn a_wrong_credential_is_told_from_the_right_one() {
    let right =
        Credential { user: "me".into(), secret: "open sesame!".into(), ..Credential::default() };
    let shape = Shape::of(NewVolume { chap: Some(right.clone()), ..asked() }).expect("in order");
    let volume = shape.volume(vec![1; 16]);
    assert_eq!(check_proof(&volume, None), Ok(()));
    assert_eq!(check_proof(&volume, Some(&right)), Ok(()));
    for wrong in [
        Credential { secret: "open sesame?".into(), ..right.clone() },
        Credential { user: "you".into(), ..right.clone() },
        Credential { mutual_user: "x".into(), ..right.clone() },
    ] {
        assert_eq!(code(check_proof(&volume, Some(&wrong))), Code::Unauthenticated);
    }
    let open = Shape::of(asked()).expect("in order").volume(vec![1; 16]);
    assert_eq!(code(check_proof(&open, Some(&right))), Code::Unauthenticated);
}
