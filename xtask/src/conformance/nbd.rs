//! NBD clients of others against three replicas: each has to find what it wrote.
use std::fs;

use anyhow::Result;

use super::site::Site;
use super::tools::{self, Tool};
use crate::shell;
use crate::totals::Totals;

const TOOLS: [Tool; 5] = [
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("fio", "fio"),
];

pub fn run(log: &str) -> Result<Totals> {
    tools::install(&TOOLS, log)?;
    let site = Site::start("nbd")?;
    site.volume("disk", "256M", "4K")?;
    let uri = format!("nbd://{}/disk", site.address("nbd")?);
    let image = site.folder().join("image");
    let copy = site.folder().join("copy");
    let (image, copy) = (image.display().to_string(), copy.display().to_string());
    let noise: Vec<u8> = noise(32 << 20);
    fs::write(&image, &noise)?;

    let mut totals = Totals::default();
    let mut check = |name: &str, script: &str| -> Result<()> {
        println!("-- {name}");
        let went = shell::program("bash", "-euo pipefail -c").arg(script).run(log)?.exited_well;
        if !went {
            eprintln!("{name} failed");
            site.show_logs();
        }
        totals += Totals::of_check(went);
        Ok(())
    };
    check(
        "nbdinfo: what is offered",
        &format!(
            "out=$(nbdinfo --json {uri}); for flag in can_flush can_fua can_trim can_zero can_multi_conn can_df; do \
         grep -q \"\\\"$flag\\\": true\" <<< \"$out\" || {{ echo \"$flag is not offered\"; exit 1; }}; done; \
         test \"$(nbdinfo --size {uri})\" = 268435456; nbdinfo --list nbd://{} | grep -q disk",
            site.address("nbd")?
        ),
    )?;
    check(
        "nbdcopy: there and back",
        &format!("nbdcopy {image} {uri}; nbdcopy {uri} {copy}; cmp -n 33554432 {image} {copy}"),
    )?;
    check(
        "nbdinfo: the map tells holes",
        &format!(
            "nbdinfo --map {uri} | awk '{{ if ($1 >= 33554432 && $3 != 3) exit 1; if ($1 < 33554432 && $3 != 0) exit 1 }}'"
        ),
    )?;
    check(
        "qemu-io: patterns, zeroes, discards, flush and FUA",
        &format!(
            "qemu-io -f raw -c 'write -P 7 64M 1M' -c 'write -f -P 8 65M 64k' -c 'read -P 7 64M 1M' -c 'read -P 8 65M 64k' \
         -c 'discard 64M 512k' -c 'read -P 0 64M 512k' -c 'write -z 65M 32k' -c 'read -P 0 65M 32k' -c 'write -z -u 65M 64k' \
         -c 'read -P 0 65M 64k' -c flush {uri} | tee /dev/stderr | (! grep -i 'error\\|failed')"
        ),
    )?;
    check(
        "qemu-io: beyond the end is refused",
        &format!(
            "(! qemu-io -f raw -c 'write -P 1 256M 4k' {uri} 2>/dev/null); qemu-io -f raw -c 'read 255M 1M' {uri}"
        ),
    )?;
    check(
        "qemu-img: convert there and back",
        &format!(
            "qemu-img convert -n -f raw -O raw {image} {uri}; rm {copy}; qemu-img map --output=json -f raw {uri} > /dev/null; \
             qemu-img convert -f raw -O raw {uri} {copy}; cmp -n 33554432 {image} {copy}"
        ),
    )?;
    check(
        "fio: verified random writes",
        &format!(
            "fio --name=v --ioengine=nbd --uri={uri} --rw=randwrite --bs=4k --iodepth=32 --size=32M --offset=128M \
         --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randseed=7 --output=/dev/null"
        ),
    )?;
    check(
        "fio: several connections",
        &format!(
            "fio --name=m --ioengine=nbd --uri={uri} --rw=randrw --bsrange=4k-64k --iodepth=16 --numjobs=4 --size=8M \
         --offset=192M --offset_increment=8M --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output=/dev/null"
        ),
    )?;
    Ok(totals)
}

/// Bytes without a pattern that a mistake could hide in; the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
