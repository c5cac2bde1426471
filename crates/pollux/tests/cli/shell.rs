//! A folder, and the program run in it.
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::SystemTime;

use engine::Pool;
use pollux::proof::{self, Scratch, limits};
use serde_json::Value;

pub struct Shell(Scratch);

impl Shell {
    pub fn new() -> Shell {
        Shell(Scratch::new("cli").expect("a folder for the test"))
    }

    /// With `pool.img`, in which there is one volume, `data`.
    pub fn with_pool() -> Shell {
        let shell = Shell::new();
        shell.succeeds(&["disk", "create", "pool.img", "--size", "16MiB"]);
        shell.succeeds(&["disk", "volume", "create", "pool.img", "data", "--size", "1MiB"]);
        shell
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_pollux"))
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("the program starts")
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("the file is there")
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("the file can be written");
    }

    /// What a command says that fails, and may have changed something.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).expect("errors are text");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: "), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}: there is no answer");
        error
    }

    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        assert_eq!(error, "", "{arguments:?}");
        String::from_utf8(output.stdout).expect("the answer is text")
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.succeeds(&[arguments, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// The command fails as it should: with this exit code, one line that has these words, no
    /// answer, and every file as it was.
    #[track_caller]
    pub fn refuses(&self, arguments: &[&str], words: &[&str]) {
        let error = self.changes_nothing(|| self.fails(arguments));
        for word in words {
            assert!(error.contains(word), "{arguments:?}: {word:?} is not in {error}");
        }
    }

    /// The command line itself is wrong: clap says so, with another exit code.
    #[track_caller]
    pub fn misunderstands(&self, arguments: &[&str], word: &str) {
        let output = self.changes_nothing(|| self.run(arguments));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.starts_with("error: "), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {word:?} is not in {error}");
    }

    #[track_caller]
    pub fn changes_nothing<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = self.files();
        let result = act();
        let after = self.files();
        let names = |files: &BTreeMap<PathBuf, _>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&before), names(&after), "files came or went");
        for (name, found) in &after {
            // Not by assert_eq, which would print megabytes.
            assert!(before[name] == *found, "{} was changed", name.display());
        }
        result
    }

    fn files(&self) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
        let entries = fs::read_dir(self.0.path()).expect("the folder of the test");
        let file = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry?.path();
            let changed = fs::metadata(&path)?.modified()?;
            let bytes = fs::read(&path)?;
            Ok((path, (changed, bytes)))
        };
        entries.map(file).collect::<std::io::Result<_>>().expect("the files of the test")
    }

    /// Holds the pool of [`Shell::with_pool`] open in this process.
    pub fn open_pool(&self) -> Pool<disk::FileDisk> {
        let disk = disk::open(self.path("pool.img"), &disk::OpenOptions::default());
        proof::open(disk.expect("nobody else has it"), limits()).expect("a pool")
    }
}
