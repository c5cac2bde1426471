//! The guest: `qemu` without KVM, a line to its console and a line to its script.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::host::Host;
use super::image::Image;
use super::script::{Line, Outcome};
use crate::shell;

/// For everything that the guest does; a little less than the whole run has.
const PATIENCE: Duration = Duration::from_secs(240);

/// A kernel that panics ends `qemu`, which ends the script's line.
const KERNEL_OPTIONS: &str = "console=ttyS0 panic=-1 quiet loglevel=5 random.trust_cpu=on";

const OPTIONS: &str = "-machine q35 -accel tcg -cpu max -m 1G -nodefaults -no-user-config -no-reboot \
                       -display none -netdev user,id=net -device virtio-net-pci,netdev=net,romfile=";

struct Machine {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn console() -> Result<PathBuf> {
    Ok(shell::reports()?.join("logs/guest-console.log"))
}

/// What the kernel and the programs said last, where that explains a failure.
pub fn show_console() -> Result<()> {
    let bytes = fs::read(console()?).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let tail: Vec<&str> = text.lines().rev().take(60).collect();
    println!("-- console of the guest, last lines");
    tail.iter().rev().for_each(|line| println!("{line}"));
    Ok(())
}

fn start(image: &Image) -> Result<Machine> {
    let mut child = Command::new("qemu-system-x86_64")
        .args(OPTIONS.split_whitespace())
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", KERNEL_OPTIONS])
        .args(["-serial", &format!("file:{}", console()?.display()), "-serial", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting qemu")?;
    let said = child.stdout.take().context("a piped stdout is there")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Machine { child, lines })
}

/// Until the script has ended; what it told.
pub fn run(image: &Image, host: &mut Host) -> Result<Vec<Outcome>> {
    let begun = Instant::now();
    let mut machine = start(image)?;
    let mut told = Vec::new();
    loop {
        let text = match machine.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            Ok(text) => text,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest hangs: no end after {} s", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the guest ended before its script"),
        };
        println!("{:6.1}  {text}", begun.elapsed().as_secs_f64());
        match Line::read(&text)? {
            Line::Outcome(outcome) => told.push(outcome),
            Line::Wish(wish) => {
                let answer = match host.grant(wish) {
                    Ok(answer) => format!("ok {answer}"),
                    Err(error) => format!("no {error:#}").replace('\n', " "),
                };
                println!("{:6.1}  {answer}", begun.elapsed().as_secs_f64());
                let line = machine.child.stdin.as_mut().context("a piped stdin is there")?;
                writeln!(line, "{answer}")?;
                line.flush()?;
            }
            Line::End => return Ok(told),
            Line::Remark(_) => {}
        }
    }
}
