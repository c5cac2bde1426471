//! What only a ring can get wrong: its ways of delivery, its threads, its absence.
use std::fs::File;
use std::sync::Arc;

use block::{ByteLen, Done, IoMode, SectorSize};

use super::*;
use crate::tests::{Scratch, perform, poll, wait_for, with, write};
use crate::{Backend, OpenOptions};

const MIB: u64 = 1 << 20;

fn target(scratch: &Scratch) -> Target {
    let file = File::options().read(true).write(true).open(scratch.path());
    Target {
        file: Arc::new(file.unwrap()),
        kind: Kind::File,
        lost: None,
        sparse: false,
        read_only: false,
        known: Geometry {
            size: ByteLen(MIB),
            sector: SectorSize::B512,
            physical_sector: SectorSize::B4096,
            mode: IoMode::Buffered,
        },
    }
}

/// Runs a test with each way of delivery that this kernel has.
fn with_each_delivery(test: impl Fn(&mut RingDisk)) {
    for delivery in Delivery::BEST_FIRST {
        let scratch = Scratch::file(MIB);
        match RingDisk::with_delivery(target(&scratch), 8, &[delivery], ByteLen(1 << 20)) {
            Ok(mut disk) => test(&mut disk),
            Err((_, error)) => crate::skipped!("SKIPPED for {delivery:?}: {error}"),
        }
    }
}

/// Protects from completions that never show on kernels which deliver them in another way.
#[test]
fn each_way_of_delivery_completes_with_and_without_waiting() {
    with_each_delivery(|disk| {
        for round in 0..20 {
            for number in 0..50 {
                disk.submit(IoId(number), write(number * 4096, 2, 4096));
            }
            if round % 2 == 0 {
                assert_eq!(wait_for(disk, 50).len(), 50);
                continue;
            }
            disk.kick();
            for _ in 0..50 {
                assert!(poll(disk).result.is_ok());
            }
        }
        disk.submit(IoId(1), Io::Flush);
        disk.kick();
        assert!(matches!(poll(disk).result, Ok(Done::Flushed)));
    });
}

/// Protects from memory that is freed while another thread's ring still uses it, and from a hang.
#[test]
fn a_disk_that_moves_with_io_in_flight_fails_loudly_and_leaks() {
    let scratch = Scratch::file(MIB);
    let bound = [Delivery::Deferred];
    let Ok(mut disk) = RingDisk::with_delivery(target(&scratch), 8, &bound, ByteLen(0)) else {
        crate::skipped!("SKIPPED: this kernel binds no ring to a thread");
        return;
    };
    // The result of a flush stays in the kernel until this thread, and no other, asks for it.
    disk.submit(IoId(1), Io::Flush);
    disk.kick();
    let failed = std::thread::spawn(move || disk.wait(None)).join();
    let message = failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("none of its IO is in flight"), "{message}");
}

/// Protects from a service that does not start where a container forbids io_uring.
#[test]
fn threads_serve_where_the_system_refuses_a_ring() {
    let refused = std::thread::spawn(|| {
        forbid_rings_in_this_thread();
        let scratch = Scratch::file(MIB);
        let error = crate::open(scratch.path(), &with(Backend::Ring)).unwrap_err();
        assert!(error.to_string().contains("refuses io_uring"), "{error}");
        let mut disk = crate::open(scratch.path(), &OpenOptions::default()).unwrap();
        assert_eq!(disk.backend(), "threads");
        assert!(perform(&mut disk, write(0, 1, 4096)).is_ok());
    });
    refused.join().unwrap();
}

/// Does what a container's system call filter does, to the calling thread only.
fn forbid_rings_in_this_thread() {
    let instruction = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf,
        k,
    };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, setup),
        instruction(libc::BPF_RET | libc::BPF_K, 0, refuse),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both calls only read their arguments, which outlive them, and change nothing but
    // which system calls this thread may make.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(set, "{}", io::Error::last_os_error());
}
