//! Protects from a site of one command that loses data, leaves processes behind, or does not say what is wrong.
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use pollux::proof::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn pollux(site: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    for name in ["POLLUX_API", "POLLUX_TOKEN", "POLLUX_TOKEN_FILE", "POLLUX_CA"] {
        command.env_remove(name);
    }
    command.args(arguments).env("POLLUX_SITE", site);
    command
}

struct Site {
    process: Child,
    scratch: Rc<Scratch>,
}

impl Drop for Site {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; otherwise it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Site {
    fn start(scratch: Rc<Scratch>) -> Site {
        let mut command = pollux(&scratch.file("site"), &["up", "--pool-size", "4GiB"]);
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut site = Site { process: process.expect("it starts"), scratch };
        let lines = BufReader::new(site.process.stdout.take().expect("a pipe")).lines();
        let welcome =
            lines.map_while(Result::ok).take_while(|line| !line.contains("Try, in another"));
        assert!(welcome.count() > 0, "there is a welcome");
        site
    }

    fn run(&self, arguments: &[&str]) -> Output {
        pollux(&self.scratch.file("site"), arguments).output().expect("the program starts")
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Ends it as Ctrl-C does, and tells what it has said.
    fn stop(mut self) -> (Rc<Scratch>, String) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::INT).expect("it runs");
        let mut said = String::new();
        let mut stderr = self.process.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        assert!(self.process.wait().expect("it ends").success(), "{said}");
        (Rc::clone(&self.scratch), said)
    }

    fn children(&self) -> Vec<u32> {
        let pid = self.process.id();
        let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        listed.expect("it runs").split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }
}

fn runs(pid: u32) -> bool {
    // What ended and was not yet waited for by whoever inherited it has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn folder() -> Rc<Scratch> {
    Rc::new(Scratch::new("up").expect("a folder"))
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} takes too long");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_site_comes_back_with_what_it_had() {
    let site = Site::start(folder());
    let made = site.json(&["volume", "create", "db", "--size", "16MiB", "--wait"]);
    assert_eq!(made["state"]["health"], "Healthy");
    assert_eq!(site.json(&["node", "list"]).as_array().map(Vec::len), Some(3));
    let second = site.run(&["up"]);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("a site runs in") && said.contains("already"), "{said}");
    let children = site.children();
    assert_eq!(children.len(), 4, "a controller and three nodes");

    let (scratch, said) = site.stop();
    assert_eq!(said, "", "nothing went wrong");
    assert!(!children.into_iter().any(runs), "nobody is left behind");

    let site = Site::start(scratch);
    let found = site.json(&["volume", "get", "db"]);
    assert_eq!(found["uid"], made["uid"]);
    until("the volume", || site.json(&["volume", "get", "db"])["state"]["health"] == "Healthy");
    let deleted = site.json(&["volume", "delete", "db", "--wait"]);
    assert_eq!(deleted["deleted"], "db");
    site.stop();
}

#[test]
fn a_process_that_dies_comes_back_and_all_end_with_their_parent() {
    let mut site = Site::start(folder());
    let before = site.children();
    let node = Pid::from_raw(i32::try_from(before[1]).expect("a pid")).expect("a pid");
    kill_process(node, Signal::KILL).expect("it runs");
    let mut line = String::new();
    let mut stderr = BufReader::new(site.process.stderr.take().expect("a pipe"));
    stderr.read_line(&mut line).expect("a line");
    assert!(line.starts_with("node-") && line.contains("SIGKILL"), "{line}");
    assert!(line.contains("it is started again"), "{line}");
    until("the node", || {
        let children = site.children();
        children.len() == 4 && !children.contains(&before[1])
    });

    let children = site.children();
    site.process.kill().expect("it runs");
    site.process.wait().expect("it ends");
    until("the end of all children", || !children.iter().any(|pid| runs(*pid)));
}

/// Protects from a README whose commands do not work, in the order in which a newcomer tries them.
#[test]
fn the_commands_of_the_readme_work_one_after_another() {
    let site = Site::start(folder());
    let program = Path::new(env!("CARGO_BIN_EXE_pollux"));
    let beside = program.parent().expect("the program lies in a folder").display();
    let path = format!("{beside}:{}", std::env::var("PATH").unwrap_or_default());
    let ours = ["volume", "snapshot", "group", "node", "pool", "explain"];
    let readme = include_str!("../../../../README.md").lines();
    let commands: Vec<&str> = readme
        .filter(|line| ours.iter().any(|word| line.starts_with(&format!("pollux {word} "))))
        .collect();
    assert!(commands.len() > 10, "the commands were not found");
    let mounted = site.scratch.file("mounted");
    std::fs::create_dir(&mounted).expect("a folder");
    let can_mount = rustix::process::geteuid().is_root()
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|device| Path::new(device).exists());
    for line in commands {
        if line.contains("mount") && !can_mount {
            eprintln!("SKIPPED: {line}: it needs root, FUSE and loop devices");
            continue;
        }
        let line = line.replace("/mnt/db", &mounted.display().to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).env("PATH", &path).env("POLLUX_SITE", site.scratch.file("site"));
        shell.env("POLLUX_ATTACHMENTS", site.scratch.file("attachments"));
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    site.stop();
}
