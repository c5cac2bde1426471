//! Writes the images of this version of the format. Done once for each version, and then kept:
//! an image that is there already is not written over.
#[path = "../tests/kept/mod.rs"]
mod kept;

fn main() -> std::io::Result<()> {
    let folder = kept::folder().join(format!("version-{}", engine::FORMAT_VERSION));
    for (sector, left, name) in kept::all() {
        let path = folder.join(format!("{name}.gz"));
        if path.exists() {
            println!("{name} is kept already");
            continue;
        }
        kept::save(&sim::fixture::make(sector, left), &path)?;
        println!("{name} was made");
    }
    Ok(())
}
