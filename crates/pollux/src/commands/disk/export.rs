//! Writing what differs between two points of a volume to a file or a pipe.
use std::path::Path;

use anyhow::Result;
use block::{ByteLen, ByteOffset};
use comfy_table::Table;
use engine::delta::{Base, Sums};
use serde::Serialize;

use crate::cli::Export;
use crate::offline::{Contents, open_shadow};
use crate::render::{self, Answer, Output};
use crate::transfer::export::{Order, measure, send};
use crate::transfer::{Meter, Sink, check_sink};

#[derive(Debug, Serialize)]
struct Exported {
    file: String,
    file_size: u64,
    from: String,
    to: String,
    frames: u64,
    data: u64,
    holes: u64,
}

impl Answer for Exported {
    fn table(&self) -> Table {
        let len = |bytes: u64| ByteLen(bytes).to_string();
        render::facts([
            ("file", format!("{}, {}", self.file, len(self.file_size))),
            ("from", self.from.clone()),
            ("to", self.to.clone()),
            ("data", len(self.data)),
            ("holes", len(self.holes)),
        ])
    }
}

pub fn run(export: &Export, output: Output) -> Result<()> {
    let Export { path, from, to, file, force, resume_from, quiet } = export;
    check_sink(file, *force)?;
    let contents = Contents::of(path)?;
    let order = Order::new(&contents, from, to, ByteOffset(resume_from.0))?;
    let mut pool = open_shadow(path)?;
    let total = match Meter::is_seen(*quiet) {
        true => Some(measure(&mut pool, &contents, &order)?),
        false => None,
    };
    let meter = Meter::new(*quiet, "exporting", total);
    let mut sink = Sink::open(file)?;
    let sums = send(&mut pool, &contents, &order, &mut sink, &meter)?;
    let file_size = sink.finish()?;
    drop(meter);
    if file == Path::new("-") {
        // The standard output has the delta; there is no place for an answer.
        return Ok(());
    }
    let Sums { frames, data, holes } = sums;
    let from = match &order.header.base {
        Base::Empty => "empty".to_owned(),
        Base::Seq(seq) => format!("seq:{}", seq.0),
        Base::Snapshot { name, .. } => name.clone(),
    };
    let answer = Exported {
        file: file.display().to_string(),
        file_size,
        from,
        to: to.clone(),
        frames,
        data: data.0,
        holes: holes.0,
    };
    render::show(&answer, output)
}
