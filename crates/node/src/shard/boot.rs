//! What tells one life of a machine from another.
use std::io;

/// The kernel's own number for its run: as long as it is the same, what a device completed is
/// not lost (P8).
pub fn kernel_boot() -> io::Result<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(io::Error::other)
}
