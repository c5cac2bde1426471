//! A volume that is served over NBD by shards with real pools and sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod site;

use std::path::PathBuf;

use site::Site;

const MIB: u64 = 1 << 20;

fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Three replicas come together, and the target serves.
#[test]
fn three_replicas_become_healthy() {
    let dir = dir("healthy");
    let mut site = Site::new(&dir);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("db", 64 * MIB, &[1, 2, 3]);
    site.serve(volume, 1);
    site.wait_healthy(1);
    (1..=3).for_each(|id| site.stop(id));
}
