//! What is refused: each with its reason, and without a trace.
use std::fs;

use engine::Checksum;

use crate::loop_device::Loop;
use crate::shell::Shell;

fn volume<'a>(verb: &'a str, name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["disk", "volume", verb, "pool.img", name], more].concat()
}

/// Every command that reads or writes a pool.
const ON_A_POOL: [&[&str]; 17] = [
    &["disk", "info", "pool.img"],
    &["disk", "volumes", "pool.img"],
    &["disk", "check", "pool.img"],
    &["disk", "grow", "pool.img", "--size", "64MiB"],
    &["disk", "volume", "create", "pool.img", "more", "--size", "1MiB"],
    &["disk", "volume", "delete", "pool.img", "data"],
    &["disk", "volume", "grow", "pool.img", "data", "--size", "2MiB"],
    &["disk", "volume", "usage", "pool.img"],
    &["disk", "snapshot", "list", "pool.img"],
    &["disk", "snapshot", "create", "pool.img", "data", "monday"],
    &["disk", "snapshot", "delete", "pool.img", "data@monday"],
    &["disk", "snapshot", "clone", "pool.img", "data@monday", "more"],
    &["disk", "snapshot", "rollback", "pool.img", "data@monday"],
    &["disk", "snapshot", "usage", "pool.img"],
    &["disk", "export", "pool.img", "--from", "empty", "--to", "data@monday", "--file", "new"],
    &["disk", "import", "pool.img", "data", "--abandon"],
    &["disk", "scrub", "pool.img"],
];

#[test]
fn volumes_of_an_impossible_size_or_name() {
    let shell = Shell::with_pool();
    for size in ["1000", "0", "4097", "129T"] {
        shell.refuses(&volume("create", "new", &["--size", size]), &["the size must be"]);
        shell.refuses(&volume("grow", "data", &["--size", size]), &["the size must be"]);
    }
    shell.refuses(&volume("create", "new", &["--size", "1000"]), &["1000 B", "4096 bytes"]);
    let fine = ["--size", "1000", "--block-size", "512"];
    shell.refuses(&volume("create", "new", &fine), &["a multiple of 512 bytes"]);
    for compression in ["gzip-0", "gzip-10", "zip", ""] {
        let bad = ["--size", "1MiB", "--compression", compression];
        shell.misunderstands(&volume("create", "new", &bad), "--compression");
    }
    for block_size in ["0", "256", "1000", "256KiB"] {
        let bad = ["--size", "1MiB", "--block-size", block_size];
        shell.refuses(&volume("create", "new", &bad), &["block size", "a power of two"]);
    }
    let long = "n".repeat(256);
    for name in ["", "a\nb", long.as_str()] {
        shell.refuses(&volume("create", name, &["--size", "1MiB"]), &["cannot name a volume"]);
    }
}

#[test]
fn volumes_that_exist_or_do_not() {
    let shell = Shell::with_pool();
    let again = volume("create", "data", &["--size", "1MiB"]);
    shell.refuses(&again, &["\"data\" exists already", "choose another name"]);
    let unknown = ["no volume \"dada\"", "pollux disk volumes pool.img"];
    shell.refuses(&volume("delete", "dada", &[]), &unknown);
    shell.refuses(&volume("grow", "dada", &["--size", "2MiB"]), &unknown);
    let less = volume("grow", "data", &["--size", "512KiB"]);
    shell.refuses(&less, &["cannot shrink", "1 MiB", "512 KiB"]);
}

#[test]
fn pools_of_an_impossible_size_leave_no_file() {
    let shell = Shell::new();
    let create = |more: &[&str], words: &[&str]| {
        shell.refuses(&[&["disk", "create", "pool.img"], more].concat(), words);
    };
    create(&[], &["pool.img", "--size"]);
    create(&["--size", "0"], &["multiple of 4 KiB"]);
    create(&["--size", "1000000"], &["multiple of 4 KiB"]);
    create(&["--size", "1MiB"], &["pool.img", "too small", "6 MiB"]);
    create(&["--size", "16MiB", "--journal", "1KiB"], &["pool.img", "a journal of 1 KiB"]);
    create(&["--size", "16MiB", "--journal", "16MiB"], &["pool.img", "too small"]);
    // No file system holds that: found out only after the file was there.
    create(&["--size", "8000000T"], &["pool.img"]);
}

#[test]
fn sizes_that_are_none_are_a_matter_of_usage() {
    let shell = Shell::with_pool();
    for size in ["ten", "1GB", "", "1.5G"] {
        shell.misunderstands(&["disk", "create", "new.img", "--size", size], "--size");
    }
    shell.misunderstands(&["disk", "create", "new.img", "--sector", "1024"], "[possible values");
    shell.misunderstands(&["disk", "info"], "PATH");
    shell.misunderstands(&["disk", "info", "pool.img", "--output", "xml"], "table, json");
}

#[test]
fn creating_over_what_exists() {
    let shell = Shell::with_pool();
    let create = ["disk", "create", "pool.img"];
    shell.refuses(&create, &["exists and is not empty", "--force"]);
    let with_size = [&create[..], &["--size", "16MiB"]].concat();
    shell.refuses(&with_size, &["exists and is not empty", "--force"]);
    let other = [&create[..], &["--size", "32MiB", "--force"]].concat();
    shell.refuses(&other, &["exists and has 16 MiB, not 32 MiB"]);
    let small = [&create[..], &["--force", "--journal", "15MiB"]].concat();
    shell.refuses(&small, &["too small"]);
    fs::write(shell.path("letter"), b"dear reader").unwrap();
    shell.refuses(&["disk", "create", "letter", "--size", "16MiB"], &["letter", "remove it"]);
    fs::write(shell.path("empty"), b"").unwrap();
    shell.refuses(&["disk", "create", "empty"], &["empty", "--size"]);
}

#[test]
fn an_empty_file_is_empty_again_after_a_failure() {
    let shell = Shell::new();
    fs::write(shell.path("empty"), b"").unwrap();
    for size in ["0", "1000", "1MiB"] {
        let output = shell.run(&["disk", "create", "empty", "--size", size]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(fs::metadata(shell.path("empty")).unwrap().len(), 0, "{size}");
    }
}

#[test]
fn paths_where_nothing_can_be() {
    let shell = Shell::new();
    let create = |path| ["disk", "create", path, "--size", "16MiB"];
    shell.refuses(&create("missing/pool.img"), &["missing", "folder does not exist"]);
    shell.refuses(&create("."), &["is a directory"]);
    // Not even root may make files there.
    shell.refuses(&create("/sys/pool.img"), &["/sys/pool.img", "no permission"]);
    shell.refuses(&create("/dev/null"), &["/dev/null is a character device"]);
    for arguments in ON_A_POOL {
        shell.refuses(arguments, &["pool.img does not exist"]);
    }
}

#[test]
fn files_that_are_no_pool() {
    let shell = Shell::new();
    let mut rng = sim::Rng::new(1);
    let mut noise = vec![0; 8 << 20];
    rng.fill(&mut noise);
    for foreign in [noise, vec![0; 8 << 20], vec![7; 4096]] {
        fs::write(shell.path("pool.img"), foreign).unwrap();
        for arguments in ON_A_POOL {
            shell.refuses(arguments, &["pool.img: this is no Pollux pool"]);
        }
    }
    fs::write(shell.path("pool.img"), b"tiny").unwrap();
    for arguments in ON_A_POOL {
        shell.refuses(arguments, &["pool.img holds 4 B"]);
    }
}

#[test]
fn pools_of_another_version() {
    let shell = Shell::with_pool();
    let path = shell.path("pool.img");
    let mut bytes = fs::read(&path).unwrap();
    let mut changed = 0;
    for page in bytes.chunks_exact_mut(4096).filter(|page| page[8..16] == *b"POLLUXSB") {
        page[16..20].copy_from_slice(&99u32.to_le_bytes());
        let sum = Checksum::of(&page[8..]).0;
        page[..8].copy_from_slice(&sum.to_le_bytes());
        changed += 1;
    }
    assert_eq!(changed, 4, "two epochs in two copies");
    fs::write(&path, bytes).unwrap();
    for arguments in ON_A_POOL {
        shell.refuses(arguments, &["pool.img: ", "version 99", "use the release that wrote it"]);
    }
}

#[test]
fn pools_that_were_cut_short() {
    let shell = Shell::with_pool();
    let file = fs::File::options().write(true).open(shell.path("pool.img")).unwrap();
    for len in [15 << 20, 4 << 20, 1 << 20, 8192] {
        file.set_len(len).unwrap();
        for arguments in ON_A_POOL {
            shell.refuses(arguments, &["pool.img: ", "it was cut short", "16 MiB"]);
        }
    }
}

#[test]
fn growing_to_less_or_to_a_fraction() {
    let shell = Shell::with_pool();
    let grow = |size| ["disk", "grow", "pool.img", "--size", size];
    shell.refuses(&grow("8MiB"), &["pool.img", "cannot shrink", "16 MiB"]);
    shell.refuses(&grow("20000000"), &["20000000 bytes", "multiple of 4 KiB"]);
}

/// Protects from two owners of one pool, which would ruin it.
#[test]
fn pools_that_somebody_has_open() {
    let shell = Shell::with_pool();
    let pool = shell.open_pool();
    // One that reads, one that writes: each is patient for a second first.
    for arguments in [ON_A_POOL[0], ON_A_POOL[4]] {
        shell.refuses(arguments, &["pool.img is in use by another process"]);
    }
    shell.refuses(&["disk", "create", "pool.img", "--force"], &["is in use"]);
    drop(pool.close().unwrap());
    shell.succeeds(&["disk", "info", "pool.img"]);
}

#[test]
fn devices_that_are_not_blank() {
    let shell = Shell::new();
    fs::File::create_new(shell.path("backing")).unwrap().set_len(16 << 20).unwrap();
    let Some(device) = Loop::attach(&shell.path("backing")) else {
        return;
    };
    let path = device.path().to_str().unwrap();
    let create = ["disk", "create", path];
    shell.refuses(&[&create[..], &["--size", "16MiB"]].concat(), &[path, "leave out --size"]);
    shell.succeeds(&create);
    shell.refuses(&create, &[path, "is not blank", "--force"]);
    shell.succeeds(&[&create[..], &["--force"]].concat());
    shell.refuses(&["disk", "grow", path, "--size", "32MiB"], &[path, "leave out --size"]);
    assert_eq!(shell.json(&["disk", "info", path])["size"], 16 << 20);
}
