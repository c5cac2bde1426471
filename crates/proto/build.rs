//! Compiles our own definitions, without a compiler that somebody would have to install.
use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 3] =
    ["pollux/v1/words.proto", "pollux/v1/catalog.proto", "pollux/v1/node.proto"];

/// Messages whose text would show a secret; `src/secrets.rs` writes it for them.
const SECRET: [&str; 1] = [".pollux.v1.Chap"];

fn main() -> Result<(), Box<dyn Error>> {
    // Where it runs, not where it was compiled: those may be two clones that share a cache.
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    tonic_prost_build::configure()
        .btree_map(".pollux.v1")
        .skip_debug(SECRET)
        .compile_fds(descriptors)?;
    Ok(())
}
