//! Numbers that nobody else has.
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes beyond guessing.
pub fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let got = getrandom(&mut *bytes, GetRandomFlags::empty()).expect("the kernel has entropy");
        bytes = &mut bytes[got..];
    }
}

/// Any number but 0, which everywhere means "none".
pub fn number() -> u64 {
    loop {
        let mut bytes = [0; 8];
        fill(&mut bytes);
        match u64::from_le_bytes(bytes) {
            0 => {}
            number => return number,
        }
    }
}
