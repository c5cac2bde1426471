use super::*;

#[test]
fn a_line_of_the_table_is_understood() {
    let line =
        b"36 35 98:0 /a\\040b /mnt/x\\011y rw,noatime master:1 - ext4 /dev/root ro,errors=continue";
    let mount = parse(line).expect("it is a line");
    assert_eq!((&*mount.device, &*mount.kind, &*mount.source), ("98:0", "ext4", "/dev/root"));
    assert_eq!((mount.root, mount.at), ("/a b".into(), "/mnt/x\ty".into()));
    assert!(mount.read_only && mount.is_shut);
    let line = b"36 35 98:0 / /mnt ro - ext4 /dev/root rw";
    assert!(parse(line).is_some_and(|mount| mount.read_only && !mount.is_shut));
}

#[test]
fn what_is_no_line_is_nothing() {
    for line in [&b""[..], b"36 35 98:0 / /mnt", b"36 35 98:0 / /mnt rw - ext4", b"x"] {
        assert_eq!(parse(line), None);
    }
}

#[test]
fn this_machines_own_table_is_understood() {
    let all = all().expect("it can be read");
    assert!(all.iter().any(|mount| mount.at == Path::new("/")));
}

#[test]
fn options_of_the_kernel_are_told_from_those_of_a_file_system() {
    let options = ["noatime,discard".to_owned(), "nouuid".to_owned(), "ro".to_owned()];
    assert_eq!(split(&options), (MountFlags::NOATIME, "discard,nouuid".into()));
}

#[test]
fn a_backslash_that_is_none_stays() {
    assert_eq!(unescaped(b"a\\9zz\\0"), OsString::from("a\\9zz\\0"));
    assert_eq!(unescaped(b"a\\134b"), OsString::from("a\\b"));
}
