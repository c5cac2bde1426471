//! Protects from a README whose commands do not work, in the order in which a newcomer tries them.
use std::path::Path;
use std::process::Command;

use crate::shell::Shell;

#[test]
fn the_commands_of_the_readme_work_one_after_another() {
    let shell = Shell::new();
    let program = Path::new(env!("CARGO_BIN_EXE_pollux"));
    let folder = program.parent().expect("the program lies in a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let readme = include_str!("../../../../README.md");
    let commands: Vec<&str> =
        readme.lines().filter(|line| line.starts_with("pollux disk ")).collect();
    assert!(commands.len() > 15, "the commands were not found");
    for command in commands {
        let output = Command::new("sh")
            .args(["-c", command])
            .env("PATH", &path)
            .current_dir(shell.path("."))
            .output()
            .expect("a shell");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "{command}: {error}");
    }
}
